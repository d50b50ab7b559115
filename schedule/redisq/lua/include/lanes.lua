-- lanes keeps each lane where its ready items, its leases, its hold and its health want it to stand: in one of the
-- runnable sets (by health, so that lanes that hang never hide those that answer), in BLOCKED until its pause ends or in
-- HELD until it gives something else than what is forced, whichever is later, or in none. Needs begin, records, flow, LANES, READY,
-- UNPROVEN, ANSWERING, TIMING_OUT, BLOCKED, HELD, BREAKERS.
--
-- A lane's record is nine numbers: virtual time, leases that count, concurrency so far (0: not yet known),
-- limit of its own (0: none), health, fresh items taken since the last retry while both waited, hold until
-- (on the steady clock), pause until, version of its setting. Six more follow where its flow is bounded
-- otherwise, too: every, at, rest, fails, since, probe. BREAKERS has the lanes whose breaker is open, so that
-- they are counted.
local LANE = '^(%d+) (%d+) (%d+) (%d+) ([012]) ([0123]) ((%d+) (%d+) %d+)'
local SHORT, LONG = LANE .. '$', LANE .. ' (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'
local homes = {[0] = UNPROVEN, [1] = ANSWERING, [2] = TIMING_OUT}
local virtual = tonumber(state[4]) or 0 -- the virtual time of the lane that was served last
local lane_limit = tonumber(state[5]) or HUGE -- the limit of lanes without one, as the last claim said
local known, touched = {}, {}
local woken = false -- a lane became runnable

local function parse_lane(lane, raw)
  local v, l, c, o, h, t, tail, u, p = string.match(raw or '', SHORT)
  local flow
  if raw and not v then
    local every, at, rest, fails, since, probe
    v, l, c, o, h, t, tail, u, p, every, at, rest, fails, since, probe = string.match(raw, LONG)
    if v then
      flow = {
        every = tonumber(every), at = tonumber(at), rest = tonumber(rest),
        fails = tonumber(fails), since = tonumber(since), probe = tonumber(probe),
      }
      flow.open = flow.probe > 0
    else
      set_aside('lane ' .. lane, raw)
    end
  end
  local health, pace, pause = tonumber(h) or 0, tonumber(c) or 0, tonumber(p) or 0
  if pause > 0 and pause <= now then
    pace = math.min(pace, START_CONCURRENCY) -- after a pause it begins low; place_lanes forgets the pause
  end
  return {
    lane = lane, raw = raw, virtual = tonumber(v) or 0, leases = tonumber(l) or 0, pace = pace, limit = tonumber(o) or 0,
    health = health, home = health, turn = tonumber(t) or 0, hold = tonumber(u) or 0, pause = pause, tail = tail,
    flow = flow, touched = false, waiting = nil, fresh = nil, retry = nil, claim = nil, digits = nil, -- room for what is nearly always added
  }
end

-- The last three numbers are seldom changed, and kept as they were read, as n.tail, so that most records are written with less work.
-- version_of reads the third; open_tail is called before any of them is changed.
local function version_of(n)
  return n.version or tonumber(string.match(n.tail or '', '%d+$')) or 0
end

local function open_tail(n)
  n.version, n.tail = version_of(n), nil
end

local function print_lane(n)
  local short = string.format('%d %d %d %d %d %d %s', n.virtual, n.leases, n.pace, n.limit, n.health, n.turn,
    n.tail or string.format('%d %d %d', n.hold, n.pause, version_of(n)))
  local f = n.flow
  if not f or f.every == 0 and f.fails == 0 and f.probe == 0 then
    return short
  end
  return short .. string.format(' %d %d %d %d %d %d', f.every, f.at, f.rest, f.fails, f.since, f.probe)
end

-- load reads the records of several lanes at once.
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

-- peek returns a lane's record to be read.
local function peek(lane)
  if not known[lane] then
    known[lane] = parse_lane(lane, call('HGET', LANES, lane))
  end
  return known[lane]
end

-- touch returns a lane's record to be changed; place_lanes must follow.
local function touch(lane)
  local n = peek(lane)
  if not n.touched then
    n.touched = true
    touched[#touched + 1] = n
  end
  return n
end

local function cap(n)
  return n.limit > 0 and n.limit or lane_limit
end

-- concurrency returns how many of the lane's items may be leased at present.
local function concurrency(n)
  return math.min(n.pace > 0 and n.pace or START_CONCURRENCY, cap(n))
end

-- room returns how many more of the lane's items may be leased, of which `within` count: the others are
-- prefetched, if a claim has said how many may be.
local function room(n)
  local within = concurrency(n) - n.leases
  if not n.ahead or within < 0 or n.health ~= 1 or n.flow and n.flow.probe > 0 then
    return within, within
  end
  return within + n.ahead, within
end

-- release ends a lease whose claim has that first digit.
local function release(n, digit)
  if is_counted(digit) then
    n.leases = math.max(n.leases - 1, 0)
  end
end

-- stop_of returns until when, on the steady clock, the lane gives nothing but what is forced; zero: it gives.
local function stop_of(n)
  local stop, f = n.hold, n.flow
  if f then
    stop = math.max(stop, f.probe)
    if f.every > 0 and tokens(f) == 0 then
      stop = math.max(stop, token_at(f))
    end
  end
  return stop > steady and stop or 0
end

-- waiting says whether the lane has anything ready.
local function waiting(n)
  return #call('ZRANGEBYLEX', READY, '[' .. n.lane .. 'd', '(' .. n.lane .. 's', 'LIMIT', '0', '1') > 0
end

-- presses says whether anything of a lane that is stopped is forced. What was promoted is not yet among READY.
local function presses(n)
  for _, member in ipairs(n.promoted or {}) do
    if string.byte(member, #n.lane + 1) < 102 then
      return true
    end
  end
  return #call('ZRANGEBYLEX', READY, '[' .. n.lane .. 'd', '(' .. n.lane .. 'f', 'LIMIT', '0', '1') > 0
end

-- keep_back notes where a lane stands that something bounds beside its concurrency, or did, and returns whether it waits for a time to
-- come.
local function keep_back(n, notes)
  local f, stop = n.flow, stop_of(n)
  local forced = stop > 0 and n.waiting and presses(n)
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

-- place_lanes puts every touched lane where it belongs and writes its record. What was added to or removed from READY
-- must have been written before.
local function place_lanes()
  local into = {[0] = {}, [1] = {}, [2] = {}}
  local leave = {[0] = {}, [1] = {}, [2] = {}}
  local notes -- of the lanes that are bounded; most are not
  for _, n in ipairs(touched) do
    if n.waiting == nil then
      n.waiting = waiting(n)
    end
    local blocked = false
    if n.flow or n.hold > 0 or n.pause > 0 or n.listed then
      notes = notes or {block = {}, unblock = {}, hold = {}, unhold = {}, open = {}, close = {}}
      blocked = keep_back(n, notes)
    end
    if n.home ~= n.health then
      table.insert(leave[n.home], n.lane)
    end
    n.runs = n.waiting and not blocked and room(n) > 0
    n.full = n.waiting and not blocked and not n.runs
    if n.runs then
      table.insert(into[n.health], n.lane)
    else
      table.insert(leave[n.health], n.lane)
    end
    n.home = n.health
  end
  for health, lanes in pairs(into) do
    local adds = {}
    for i, score in ipairs(fetch('ZMSCORE', homes[health], lanes)) do
      local n = known[lanes[i]]
      if not score then
        -- A lane that comes back does not bring along what it did not use while it was away.
        n.virtual = math.max(n.virtual, virtual)
        n.entered, woken = true, true
      end
      if tonumber(score or -1) ~= n.virtual then
        adds[#adds + 1] = text(n.virtual)
        adds[#adds + 1] = n.lane
      end
    end
    variadic('ZADD', homes[health], adds)
  end
  for health, lanes in pairs(leave) do
    variadic('ZREM', homes[health], lanes)
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
    state[8] = '1' -- from now on LANES is never empty
    call('HSET', META, 'lanes', state[8])
  end
  touched = {}
end
