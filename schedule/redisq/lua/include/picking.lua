-- picking chooses the items to lease by start-time fair queueing: the lane that was served least is next, and
-- gives at most a quantum. It leaves the items where they are; the claim moves those that were picked. Needs
-- begin, records, flow, lanes, READY, MAX, MAX_UNCERTAIN, MAX_TIMING_OUT.
local MAX_VISITS = 512 -- turns in one claim, so that its duration is bounded

local left, uncertain, timing_out = tonumber(MAX), tonumber(MAX_UNCERTAIN), tonumber(MAX_TIMING_OUT)

-- share returns how many items lanes of a health may still give.
local function share(health)
  if health == 1 then
    return left
  elseif health == 0 then
    return math.min(left, uncertain)
  end
  return math.min(left, uncertain, timing_out)
end

-- A stream reads one of the runnable sets in the order of virtual time, 64 lanes at a time. The sets do not
-- change before the pick ends, except that pick removes a lane that is in the wrong set. An exhausted stream
-- is removed.
local streams = {}
for health = 0, 2 do
  streams[health + 1] = {health = health, at = 1, offset = 0, lanes = {}}
end

local function peek_stream(s)
  if s.at > #s.lanes then
    if s.over then
      return
    end
    s.lanes = call('ZRANGE', runnable_sets[s.health], text(s.offset), text(s.offset + 63), 'WITHSCORES')
    s.at, s.offset, s.over = 1, s.offset + 64, #s.lanes < 128
    local names = {}
    for i = 1, math.min(#s.lanes, 2 * left), 2 do
      names[#names + 1] = s.lanes[i]
    end
    load(names)
  end
  return s.lanes[s.at], tonumber(s.lanes[s.at + 1])
end

local served = {} -- lanes that gave items and can give more

-- lowest removes and returns the lane with the lowest virtual time, of those whose health has a share left.
-- It also returns the health of the set that has the lane, or nil if the lane comes from served.
local function lowest()
  local best, at, stream, index
  for i = #streams, 1, -1 do
    local s = streams[i]
    if share(s.health) > 0 then
      local lane, score = peek_stream(s)
      if not lane then
        table.remove(streams, i)
      elseif not best or score < at or score == at and lane < best then
        best, at, stream = lane, score, s
      end
    end
  end
  for i, n in ipairs(served) do
    if share(n.health) > 0 and (not best or n.virtual < at or n.virtual == at and n.lane < best) then
      best, at, index = n.lane, n.virtual, i
    end
  end
  if index then
    return table.remove(served, index)
  elseif stream then
    stream.at = stream.at + 2
    return touch(best), stream.health
  end
end

local FRESH = 102 -- the kind of fresh items; forced kinds are less, retries are more

-- A queue has the ready items of one kind of a lane, as far as they were read. The first `at` items are
-- taken. over says that there are no others.
local function queue(items, over)
  return {at = 0, items = items, over = over}
end

local NONE = queue({}, true)

local function short_of(q, want)
  return not q.over and #q.items - q.at < want
end

-- read_queue reads until `want` items are left, if there are so many. A lane that gives a second time
-- probably gives all that is left, so the second read is long.
local function read_queue(n, q, kind, past, want)
  if short_of(q, want) then
    local from, most = '[' .. n.lane .. kind, want
    if #q.items > 0 then
      from, most = '(' .. q.items[#q.items], math.max(want, left + 1) - (#q.items - q.at)
    end
    local more = call('ZRANGEBYLEX', READY, from, '(' .. n.lane .. past, 'LIMIT', '0', text(most))
    for _, member in ipairs(more) do
      q.items[#q.items + 1] = member
    end
    q.over = #more < most
  end
end

-- split_forced moves forced items from what was read of a lane to n.forced, and returns the others. over says
-- that there are no more items.
local function split_forced(n, read, over)
  local kind, count = #n.lane + 1, 0
  while count < #read and string.byte(read[count + 1], kind) < FRESH do
    count = count + 1
  end
  n.forced = queue({unpack(read, 1, count)}, over or count < #read)
  return {unpack(read, count + 1)}
end

-- split_promoted makes queues of the promoted items, which are all that the lane has.
local function split_promoted(n)
  local forced, fresh, retry, kind = {}, {}, {}, #n.lane + 1
  table.sort(n.promoted)
  for _, member in ipairs(n.promoted) do
    local byte = string.byte(member, kind)
    table.insert(byte == FRESH and fresh or byte > FRESH and retry or forced, member)
  end
  n.fresh, n.retry = queue(fresh, true), queue(retry, true)
  n.forced = #forced > 0 and queue(forced, true) or nil
end

-- available returns the lane's queues of fresh items and retries, with `want` items left in each if there are
-- so many. n.forced has the forced items, if there are any. Most lanes have few items: the first read is for
-- all kinds, and often the only one.
local function available(n, want)
  if not n.fresh and n.promoted then
    split_promoted(n)
  elseif not n.fresh then
    local from, past = '[' .. n.lane .. 'd', '(' .. n.lane .. 's'
    local both = call('ZRANGEBYLEX', READY, from, past, 'LIMIT', '0', text(want))
    local over, kind = #both < want, #n.lane + 1
    if both[1] and string.byte(both[1], kind) < FRESH then
      both = split_forced(n, both, over)
    end
    local retries = #both -- the number of items before the first retry; nearly always all are of one kind
    while retries > 0 and string.byte(both[retries], kind) ~= FRESH do
      retries = retries - 1
    end
    if retries == #both then
      n.fresh, n.retry = queue(both, over), over and NONE or queue({}, false)
    elseif retries == 0 then
      n.fresh, n.retry = NONE, queue(both, over)
    else
      n.fresh, n.retry = queue({unpack(both, 1, retries)}, true), queue({unpack(both, retries + 1)}, over)
    end
  end
  if n.forced then
    read_queue(n, n.forced, 'd', 'f', want)
  end
  read_queue(n, n.fresh, 'f', 'g', want)
  read_queue(n, n.retry, 'r', 's', want)
  return n.fresh, n.retry
end

local picked = {} -- members of READY, or of n.promoted
local givers, prefetched = {}, {} -- the lane of each, and whether it exceeds the lane's concurrency

-- is_due returns whether the first item left in a queue is due, and not only within the lookahead.
local function is_due(n, q)
  local first = #n.lane + 2
  return time_of(string.sub(q.items[q.at + 1], first, first + DUE - 1)) <= now
end

-- serve_forced picks up to `most` forced items of the lane, and returns their number.
local function serve_forced(n, most, within)
  local q, taken = n.forced, 0
  while taken < most and q.at < #q.items do
    q.at = q.at + 1
    local i = #picked + 1
    picked[i], givers[i], prefetched[i] = q.items[q.at], n, taken >= within
    taken = taken + 1
  end
  return taken
end

-- serve picks up to a quantum of the lane's items: first forced ones, then FRESH_SHARE fresh ones for each
-- retry while both kinds are ready. An item that is due goes before one that is only within the lookahead.
-- Items that are not forced take a token each, if the lane has a rate. A stopped lane gives forced items
-- only.
local function serve(n)
  local all, within = room(n)
  local most = math.min(QUANTUM, share(n.health), all)
  if most <= 0 then
    return -- it has no room; place_lanes takes it out of the runnable sets
  end
  virtual = math.max(virtual, n.virtual)
  local fresh, retry = available(n, most + 1)
  local taken = n.forced and serve_forced(n, most, within) or 0
  local f, forced_taken = n.flow, taken
  local bounded = f or n.hold > 0 -- most lanes are not
  if bounded and stopped_until(n) > 0 then
    most = taken
  elseif f and f.every > 0 then
    most = math.min(most, taken + tokens(f))
  end
  while taken < most do
    local has_fresh, has_retry = fresh.at < #fresh.items, retry.at < #retry.items
    local q = fresh
    if has_fresh and has_retry and is_due(n, fresh) ~= is_due(n, retry) then
      q = is_due(n, fresh) and fresh or retry
    elseif has_fresh and has_retry then
      if n.turn < FRESH_SHARE then
        n.turn = n.turn + 1
      else
        q, n.turn = retry, 0
      end
    elseif has_retry then
      q = retry
    elseif not has_fresh then
      break
    end
    q.at = q.at + 1
    local i = #picked + 1
    picked[i], givers[i], prefetched[i] = q.items[q.at], n, taken >= within
    taken = taken + 1
  end
  if f and f.every > 0 and taken > forced_taken then
    spend(f, taken - forced_taken)
  end
  local counted = math.min(taken, within)
  if taken > counted then
    n.prefetch = n.prefetch - (taken - counted)
  end
  n.virtual, n.leases, left = n.virtual + taken, n.leases + counted, left - taken
  if n.health ~= 1 then
    uncertain = uncertain - taken
  end
  if n.health == 2 then
    timing_out = timing_out - taken
  end
  local forced = n.forced and n.forced.at < #n.forced.items
  n.waiting = forced or fresh.at < #fresh.items or retry.at < #retry.items
  if n.promoted and not n.waiting then
    n.waiting = nil -- place_lanes finds out: a lane that got room by a changed limit may have older items
  end
  if n.waiting and (not bounded or forced or stopped_until(n) == 0) and room(n) > 0 then
    served[#served + 1] = n
  end
end

-- pick serves lanes in turn until the claim's items or the lanes are used up.
local function pick()
  for _ = 1, MAX_VISITS do
    local n, stream = lowest()
    if not n then
      break
    end
    if stream and stream ~= n.health then
      call('ZREM', runnable_sets[stream], n.lane) -- a damaged set: the lane would be found again and again
    else
      serve(n)
    end
  end
end
