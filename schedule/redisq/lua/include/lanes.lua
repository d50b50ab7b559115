-- lanes keeps each lane in the set that fits its ready items, leases, limits and health. A lane with ready
-- items is in one of three kinds of sets, or in none if it has no room:
--
-- - One of the runnable sets. Each health has its own, so that lanes that time out never hide lanes that
--   answer.
-- - BLOCKED until its pause ends.
-- - HELD until its hold, breaker or rate no longer stops items that are not forced, if that is later.
--
-- Needs begin, records, flow, LANES, READY, UNPROVEN, ANSWERING, TIMING_OUT, BLOCKED, HELD, BREAKERS.
--
-- A lane's record is nine numbers: virtual time, leases that count, concurrency (0: unchanged, so
-- START_CONCURRENCY), its own limit (0: none), health, fresh items served since the last retry while both
-- kinds were ready, end of the hold (steady clock), end of the pause, version of its setting. A lane with a
-- rate, or whose last attempts got no answer, has six more: every, at, rest, fails, since, probe. Builds of
-- the same layout read each other's records, so they must not change. BREAKERS has the lanes whose breaker is
-- open, so that they can be counted.
local LANE = '^(%d+) (%d+) (%d+) (%d+) ([012]) ([0123]) ((%d+) (%d+) %d+)'
local SHORT, LONG = LANE .. '$', LANE .. ' (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'
local runnable_sets = {[0] = UNPROVEN, [1] = ANSWERING, [2] = TIMING_OUT}
local virtual = tonumber(state[4]) or 0 -- the virtual time of the lane that was served last
local lane_limit = tonumber(state[5]) or HUGE -- the limit of lanes without their own, from the last claim
local known, touched = {}, {}
local woken = false -- a lane became runnable

-- parse_lane reads a lane's record. A missing or unreadable one becomes that of a new lane.
local function parse_lane(lane, raw)
  local start, leases, pace, limit, health, turn, tail, hold, pause = string.match(raw or '', SHORT)
  local flow
  if raw and not start then
    local every, at, rest, fails, since, probe
    start, leases, pace, limit, health, turn, tail, hold, pause, every, at, rest, fails, since, probe =
      string.match(raw, LONG)
    if start then
      flow = {
        every = tonumber(every), at = tonumber(at), rest = tonumber(rest),
        fails = tonumber(fails), since = tonumber(since), probe = tonumber(probe),
      }
      flow.open = flow.probe > 0
    else
      set_aside('lane ' .. lane, raw)
    end
  end
  health, pace, pause = tonumber(health) or 0, tonumber(pace) or 0, tonumber(pause) or 0
  if pause > 0 and pause <= now then
    pace = math.min(pace, START_CONCURRENCY) -- it restarts low after a pause; place_lanes clears the pause
  end
  return {
    lane = lane, raw = raw, virtual = tonumber(start) or 0, leases = tonumber(leases) or 0, pace = pace,
    limit = tonumber(limit) or 0, health = health, set = health, turn = tonumber(turn) or 0,
    hold = tonumber(hold) or 0, pause = pause, tail = tail, flow = flow, touched = false,
    waiting = nil, fresh = nil, retry = nil, claim = nil, digits = nil, -- allocates their slots at once
  }
end

-- The last three numbers of a record seldom change. n.tail has them as they were read, so that printing a
-- record takes less work. version_of reads the last of them. open_tail must be called before any of them
-- changes.
local function version_of(n)
  return n.version or tonumber(string.match(n.tail or '', '%d+$')) or 0
end

local function open_tail(n)
  n.version, n.tail = version_of(n), nil
end

-- print_lane returns a lane's record.
local function print_lane(n)
  local short = string.format('%d %d %d %d %d %d %s', n.virtual, n.leases, n.pace, n.limit, n.health, n.turn,
    n.tail or string.format('%d %d %d', n.hold, n.pause, version_of(n)))
  local f = n.flow
  if not f or f.every == 0 and f.fails == 0 and f.probe == 0 then
    return short
  end
  return short .. string.format(' %d %d %d %d %d %d', f.every, f.at, f.rest, f.fails, f.since, f.probe)
end

-- load reads the records of several lanes with one command.
local function load(lanes)
  local missing = {}
  for _, lane in ipairs(lanes) do
    if not known[lane] then
      known[lane] = true
      missing[#missing + 1] = lane
    end
  end
  for i, raw in ipairs(fetch('HMGET', LANES, missing)) do
    known[missing[i]] = parse_lane(missing[i], raw)
  end
end

-- peek returns a lane's record for reading.
local function peek(lane)
  if not known[lane] then
    known[lane] = parse_lane(lane, call('HGET', LANES, lane))
  end
  return known[lane]
end

-- touch returns a lane's record for changes. place_lanes must follow.
local function touch(lane)
  local n = peek(lane)
  if not n.touched then
    n.touched = true
    touched[#touched + 1] = n
  end
  return n
end

-- limit_of returns the lane's limit: its own, or that of the last claim.
local function limit_of(n)
  return n.limit > 0 and n.limit or lane_limit
end

-- concurrency returns how many counted leases the lane may have now.
local function concurrency(n)
  return math.min(n.pace > 0 and n.pace or START_CONCURRENCY, limit_of(n))
end

-- room returns how many more items of the lane may be leased, and how many of these count. The others are
-- prefetched, as far as the claim allows it.
local function room(n)
  local within = concurrency(n) - n.leases
  if not n.prefetch or within < 0 or n.health ~= 1 or n.flow and n.flow.probe > 0 then
    return within, within
  end
  return within + n.prefetch, within
end

-- release takes a lease out of the lane's count, if it counts. digit is the first digit of its claim.
local function release(n, digit)
  if is_counted(digit) then
    n.leases = math.max(n.leases - 1, 0)
  end
end

-- stopped_until returns until when, on the steady clock, the lane gives forced items only; 0: it gives all.
local function stopped_until(n)
  local stop, f = n.hold, n.flow
  if f then
    stop = math.max(stop, f.probe)
    if f.every > 0 and tokens(f) == 0 then
      stop = math.max(stop, token_at(f))
    end
  end
  return stop > steady and stop or 0
end

-- waiting returns whether the lane has ready items.
local function waiting(n)
  return #call('ZRANGEBYLEX', READY, '[' .. n.lane .. 'd', '(' .. n.lane .. 's', 'LIMIT', '0', '1') > 0
end

-- has_forced returns whether the lane has forced ready items. Promoted items are not in READY yet.
local function has_forced(n)
  for _, member in ipairs(n.promoted or {}) do
    if string.byte(member, #n.lane + 1) < 102 then
      return true
    end
  end
  return #call('ZRANGEBYLEX', READY, '[' .. n.lane .. 'd', '(' .. n.lane .. 'f', 'LIMIT', '0', '1') > 0
end

-- place_bounded notes the place of a lane that has, or had, a limit besides its concurrency. It returns
-- whether the lane waits for a known time.
local function place_bounded(n, notes)
  local f, stop = n.flow, stopped_until(n)
  local forced = stop > 0 and n.waiting and has_forced(n)
  local blocked = n.waiting and (n.pause > now or stop > 0 and not forced)
  if blocked and (forced or n.pause - now >= stop - steady) then
    table.insert(notes.block, text(n.pause))
    table.insert(notes.block, n.lane)
    table.insert(notes.unhold, n.lane)
  elseif blocked then
    table.insert(notes.hold, text(stop))
    table.insert(notes.hold, n.lane)
    table.insert(notes.unblock, n.lane)
  else
    table.insert(notes.unblock, n.lane)
    table.insert(notes.unhold, n.lane)
  end
  if n.hold > 0 and n.hold <= steady or n.pause > 0 and n.pause <= now then
    open_tail(n)
    n.hold, n.pause = n.hold > steady and n.hold or 0, n.pause > now and n.pause or 0
  end
  if f and f.open ~= (f.probe > 0) then
    f.open = not f.open
    if f.open then
      table.insert(notes.open, text(steady))
      table.insert(notes.open, n.lane)
    else
      table.insert(notes.close, n.lane)
    end
  end
  return blocked
end

-- place_lanes puts every touched lane into its set and writes its record. READY must have been written
-- before, or n.waiting set.
local function place_lanes()
  local into = {[0] = {}, [1] = {}, [2] = {}}
  local leave = {[0] = {}, [1] = {}, [2] = {}}
  local notes -- of bounded lanes; most lanes are not
  for _, n in ipairs(touched) do
    if n.waiting == nil then
      n.waiting = waiting(n)
    end
    local blocked = false
    if n.flow or n.hold > 0 or n.pause > 0 or n.listed then
      notes = notes or {block = {}, unblock = {}, hold = {}, unhold = {}, open = {}, close = {}}
      blocked = place_bounded(n, notes)
    end
    if n.set ~= n.health then
      table.insert(leave[n.set], n.lane)
    end
    n.runs = n.waiting and not blocked and room(n) > 0
    n.full = n.waiting and not blocked and not n.runs
    if n.runs then
      table.insert(into[n.health], n.lane)
    else
      table.insert(leave[n.health], n.lane)
    end
    n.set = n.health
  end
  for health, lanes in pairs(into) do
    local adds = {}
    for i, score in ipairs(fetch('ZMSCORE', runnable_sets[health], lanes)) do
      local n = known[lanes[i]]
      if not score then
        -- A lane that comes back gets no credit for the time in which it gave nothing.
        n.virtual = math.max(n.virtual, virtual)
        n.entered, woken = true, true
      end
      if tonumber(score or -1) ~= n.virtual then
        adds[#adds + 1] = text(n.virtual)
        adds[#adds + 1] = n.lane
      end
    end
    variadic('ZADD', runnable_sets[health], adds)
  end
  for health, lanes in pairs(leave) do
    variadic('ZREM', runnable_sets[health], lanes)
  end
  if notes then
    variadic('ZADD', BLOCKED, notes.block)
    variadic('ZADD', HELD, notes.hold)
    variadic('ZADD', BREAKERS, notes.open)
    variadic('ZREM', BLOCKED, notes.unblock)
    variadic('ZREM', HELD, notes.unhold)
    variadic('ZREM', BREAKERS, notes.close)
  end
  local records = {}
  for _, n in ipairs(touched) do
    local raw = print_lane(n)
    if raw ~= n.raw then
      n.raw = raw
      records[#records + 1] = n.lane
      records[#records + 1] = raw
    end
    n.touched, n.waiting, n.listed = nil, nil, nil
  end
  variadic('HSET', LANES, records)
  if #records > 0 and not state[8] then
    state[8] = '1' -- from now on LANES must have members, see find_lost_keys.lua
    call('HSET', META, 'lanes', state[8])
  end
  touched = {}
end
