-- claim ends leases' counting, reaps, promotes and leases; a repetition of the owner's last claim gives the
-- same batch again.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS OWNERS SEEN QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD OWNER TOKEN MAX MAX_UNCERTAIN MAX_TIMING_OUT LEASE LANE_LIMIT LOOKAHEAD PREFETCH
-- EACH: id token next
-- Prefetch is, for each lane of which more may be leased than its concurrency has room for, "lane most ".
-- Each is a lease whose attempt has ended: it counts no longer; next, which is id and token or empty, counts
-- from now on.
-- Reply: now, next, seq, more, waiting, reaped, quarantined; for each lease: id, record, health (and 3 if its lane has more
-- that is ready, and no room for it, and 6 if it was prefetched), until
-- Uses: begin records changes flow lanes counting events
local MAX_UNBLOCK, MAX_VISITS, OWNER_REST = '256', 512, 86400000

if state[6] then
  return redis.error_reply('REBUILDING the shard is closed for claims')
end
call('HDEL', META, '') -- as settle does: what is claimed is what makes room

-- again returns what is still leased of the owner's last claim, if this is its repetition.
local function repeated()
  local last = call('HGET', OWNERS, OWNER)
  if not last or string.sub(last, 1, #TOKEN + 1) ~= TOKEN .. ' ' then
    return nil
  end
  local ids = {}
  for first = #TOKEN + 2, #last, 26 do
    ids[#ids + 1] = string.sub(last, first, first + 25)
  end
  local leases = {}
  local records = fetch('HMGET', RECORDS, ids)
  local ends = fetch('ZMSCORE', LEASES, ids)
  for i, claim in ipairs(fetch('HMGET', CLAIMS, ids)) do
    local digit, _, token = decode_claim(claim)
    if token == TOKEN and ends[i] and decode(records[i]) then
      local l = #leases
      leases[l + 1], leases[l + 2], leases[l + 3], leases[l + 4] = ids[i], records[i], digit % 3 + 3 + (is_counted(digit) and 0 or 6), wall(tonumber(ends[i]))
    end
  end
  return leases
end

-- end_leases stops counting the leases of attempts that have ended, and counts those that took their places.
local freed = {} -- lanes

local function end_leases()
  local ids, tokens, nexts = column(1), column(2), column(3)
  local all = column(1)
  for _, next in ipairs(nexts) do
    if next ~= '' then
      all[#all + 1] = string.sub(next, 1, 26)
    end
  end
  local claims = claims_of(all)
  for i, id in ipairs(ids) do
    count_next(claims, nexts[i])
    local n = set_counted(claims, id, tokens[i], false)
    if n then
      freed[n] = true
    end
  end
  write_changes()
end

-- prefetch lets lanes give more than they have room for, until end_prefetch.
local prefetching = {}

local function prefetch()
  for lane, most in string.gmatch(PREFETCH, '(%w+) (%d+) ') do
    local n = touch(lane)
    n.prefetch = tonumber(most)
    prefetching[#prefetching + 1] = n
  end
end

local function end_prefetch()
  for _, n in ipairs(prefetching) do
    n.prefetch = nil
    touch(n.lane)
  end
end

-- reap returns expired leases to the delay set, and says how many. They come back spread over 100 ms by their ids: the
-- leases of a process that died end together, and need not come back together.
local function reap()
  local ids = call('ZRANGEBYSCORE', LEASES, '-inf', text(steady), 'LIMIT', '0', text(MAX_REAP))
  local records = fetch('HMGET', RECORDS, ids)
  for i, claim in ipairs(fetch('HMGET', CLAIMS, ids)) do
    local digit, lane, _, moved, move_forces = decode_claim(claim)
    local id, due, _, record_lane, rest = ids[i], decode(records[i])
    lane = lane or record_lane
    if lane then
      local n = touch(lane)
      n.reaped = true
      release(n, digit or '0')
    end
    unlease(id)
    if due then
      local spread = (string.byte(id, 25) * 32 + string.byte(id, 26)) % REAP_SPREAD
      local at = math.min(now + spread, moved or HUGE)
      postpone(id, at, redue(records[i], at, diverts_of(rest), move_forces))
    else
      set_aside(id, records[i])
      add(cut.records, id)
    end
  end
  write_changes()
  if #ids > 0 then
    counts.reaped = #ids
  end
  return #ids
end

-- promote takes items that are due by then out of the delay set, for their lanes' ready items. It writes nothing: where they
-- are all that their lane has ready, those that are leased at once need not become ready. enlist or lease must follow.
local promoted = {} -- lanes
local record_of = {} -- of the ids that were promoted

-- had_none says whether a lane that is in no runnable set has nothing ready: nothing holds it, and it has had room since before.
local function had_none(n)
  return n.hold == 0 and n.pause == 0 and not n.flow and not n.reaped and not freed[n] and state[5] == LANE_LIMIT and concurrency(n) > n.leases
end

local function promote(by)
  local ids = call('ZRANGEBYSCORE', DELAY, '-inf', text(by), 'LIMIT', '0', text(MAX_PROMOTE))
  local members, lanes = {}, {}
  for i, record in ipairs(fetch('HMGET', RECORDS, ids)) do
    local due, kind, lane = decode(record)
    if due then
      record_of[ids[i]] = record
      if not members[lane] then
        members[lane] = {}
        lanes[#lanes + 1] = lane
      end
      table.insert(members[lane], lane .. kind .. due .. ids[i])
    else
      set_aside(ids[i], record)
      add(cut.records, ids[i])
    end
  end
  cut.delay = ids
  load(lanes)
  for i, lane in ipairs(lanes) do
    local n = touch(lane)
    n.waiting, n.promoted, n.had_none = true, members[lane], had_none(n)
    promoted[i] = n
  end
end

-- enlist makes ready what was promoted for lanes that may have other ready items, or that nothing is taken of now.
local function enlist()
  for _, n in ipairs(promoted) do
    if not (n.had_none and n.entered) then
      for _, member in ipairs(n.promoted) do
        add(put.ready, '0', member)
      end
      n.promoted = nil
    end
  end
  variadic('ZADD', READY, put.ready)
  put.ready = {}
end

-- unblock looks at lanes whose hold or pause has ended.
local function unblock()
  for _, lane in ipairs(call('ZRANGEBYSCORE', BLOCKED, '-inf', text(now), 'LIMIT', '0', MAX_UNBLOCK)) do
    touch(lane).listed = true
  end
  for _, lane in ipairs(call('ZRANGEBYSCORE', HELD, '-inf', text(steady), 'LIMIT', '0', MAX_UNBLOCK)) do
    touch(lane).listed = true
  end
end

local left, uncertain, timing_out = tonumber(MAX), tonumber(MAX_UNCERTAIN), tonumber(MAX_TIMING_OUT)

-- share returns how many items lanes of that health may still give.
local function share(health)
  if health == 1 then
    return left
  elseif health == 0 then
    return math.min(left, uncertain)
  end
  return math.min(left, uncertain, timing_out)
end

-- A stream reads one of the runnable sets in the order of virtual time, 64 lanes at a time. The sets do not change
-- before the pick is over. One that has run dry is dropped.
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

local served = {} -- lanes that gave and can give again

-- lowest takes the lane with the lowest virtual time of those that have room, and says in which set it was found.
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

local FRESH = 102 -- what fresh items have for a kind; less: they are forced, more: they are retries

-- A queue is what was read of a lane's ready items of one kind, of which the first `at` were taken. It is over when there
-- are no more than were read.
local function queue(items, over)
  return {at = 0, items = items, over = over}
end

local NONE = queue({}, true)

local function short_of(q, want)
  return not q.over and #q.items - q.at < want
end

-- read_queue reads on until `want` items are left to be taken, if there are that many. Who gives more than the first time may
-- well give all that is left.
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

-- split_forced takes what is forced from the front of what was read of a lane, and returns the rest. Over: there is no more.
local function split_forced(n, read, over)
  local kind, count = #n.lane + 1, 0
  while count < #read and string.byte(read[count + 1], kind) < FRESH do
    count = count + 1
  end
  n.forced = queue({unpack(read, 1, count)}, over or count < #read)
  return {unpack(read, count + 1)}
end

-- split_promoted makes queues of what was promoted, which is all that the lane has.
local function split_promoted(n)
  local forced, fresh, retry, kind = {}, {}, {}, #n.lane + 1
  table.sort(n.promoted)
  for _, member in ipairs(n.promoted) do
    local byte = string.byte(member, kind)
    table.insert(byte == FRESH and fresh or byte > FRESH and retry or forced, member)
  end
  n.fresh, n.retry, n.forced = queue(fresh, true), queue(retry, true), #forced > 0 and queue(forced, true) or nil
end

-- available returns the lane's fresh items and its retries, so many of each that `want` are left if there are that many; and as
-- n.forced what is forced, if anything is. Most lanes have few items: the first read takes all kinds at once, and is often the only
-- one.
local function available(n, want)
  if not n.fresh and n.promoted then
    split_promoted(n)
  elseif not n.fresh then
    local both = call('ZRANGEBYLEX', READY, '[' .. n.lane .. 'd', '(' .. n.lane .. 's', 'LIMIT', '0', text(want))
    local over, kind = #both < want, #n.lane + 1
    if both[1] and string.byte(both[1], kind) < FRESH then
      both = split_forced(n, both, over)
    end
    local retries = #both -- from there on; nearly always all are of one kind
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

local picked = {} -- members of READY, or what would be
local givers, prefetched = {}, {} -- their lanes, and whether they are prefetched the lane's room

-- is_due says whether the first that is left of a lane's queue is due, and not only within a claim's lead.
local function is_due(n, q)
  local first = #n.lane + 2
  return time_of(string.sub(q.items[q.at + 1], first, first + DUE - 1)) <= now
end

-- serve_forced takes up to so many of what is forced in the lane, and returns how many.
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

-- serve takes up to a quantum of the lane's items: first what is forced, then three fresh ones for each retry while both kinds wait.
-- What is not due yet waits for what is. What is not forced takes a token each, where the lane has a rate; a lane that is stopped gives
-- what is forced alone.
local function serve(n)
  local all, within = room(n)
  local most = math.min(QUANTUM, share(n.health), all)
  if most <= 0 then
    return -- it is full; place_lanes takes it out of the runnable ones
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
    n.waiting = nil -- place_lanes looks: a lane that a changed limit gave room may have more than was promoted
  end
  if n.waiting and (not bounded or forced or stopped_until(n) == 0) and room(n) > 0 then
    served[#served + 1] = n
  end
end

local function pick()
  for _ = 1, MAX_VISITS do
    local n, stream = lowest()
    if not n then
      break
    end
    if stream and stream ~= n.health then
      call('ZREM', runnable_sets[stream], n.lane) -- a stray of a damaged set: it would be met for ever
    else
      serve(n)
    end
  end
end

-- is_current says whether a member of READY is what the id's record says. Most records end with the lane.
local function is_current(member, n, id, record)
  local kind = #n.lane + 1
  n.digits = n.digits or string.sub(n.lane, 2)
  if record == string.sub(member, kind + 1, kind + DUE) .. string.sub(member, kind, kind) .. n.digits then
    return true
  end
  local due, fresh, lane = decode(record)
  return due and lane .. fresh .. due .. id == member
end

-- lease writes the picked items as leased until that time of the steady clock, and what else was promoted as ready. It returns
-- the leases as they are replied, and their lanes.
local function lease(untilms)
  local ids, unread = {}, {}
  for i, member in ipairs(picked) do
    ids[i] = string.sub(member, -26)
    if not record_of[ids[i]] then
      unread[#unread + 1] = ids[i]
    end
  end
  for i, record in ipairs(fetch('HMGET', RECORDS, unread)) do
    record_of[unread[i]] = record
  end
  local ending, replied = text(untilms), wall(untilms)
  local ends, claims, gone, leases, lanes = put.leases, put.claims, cut.ready, {}, {}
  for i, id in ipairs(ids) do
    local member, n, record = picked[i], givers[i], record_of[id]
    if not n.promoted then
      gone[#gone + 1] = member
    end
    if is_current(member, n, id, record) then
      n.claim = n.claim or n.lane .. '.' .. TOKEN
      local e, c, l, digit = #ends, #claims, #leases, n.health + (prefetched[i] and 3 or 0)
      ends[e + 1], ends[e + 2] = ending, id
      claims[c + 1], claims[c + 2] = id, digit .. n.claim
      leases[l + 1], leases[l + 2], leases[l + 3], leases[l + 4] = id, record, n.health + (prefetched[i] and 6 or 0), replied
      lanes[#lanes + 1] = n
    else
      release(n, prefetched[i] and '3' or '0')
      if not decode(record) then
        set_aside(id, record)
        add(cut.records, id)
      end
    end
  end
  for _, n in ipairs(promoted) do
    if n.promoted and n.fresh then
      for _, q in ipairs({n.fresh, n.retry, n.forced}) do
        for i = q.at + 1, #q.items do
          add(put.ready, '0', q.items[i])
        end
      end
    elseif n.promoted then
      for _, member in ipairs(n.promoted) do
        add(put.ready, '0', member)
      end
    end
  end
  write_changes()
  if #leases > 0 then
    counts.claimed = #leases / 4
  end
  return leases, lanes
end

-- note_full adds 3 to the health of leases whose lanes have more that is ready, and no room for it.
local function note_full(leases, lanes)
  for i, n in ipairs(lanes) do
    if n.full then
      leases[i * 4 - 1] = leases[i * 4 - 1] + 3
    end
  end
end

-- remember keeps the claim as its owner's last one, and forgets owners that have been silent.
local function remember(leases)
  local ids = {}
  for i = 1, #leases, 4 do
    ids[#ids + 1] = leases[i]
  end
  call('HSET', OWNERS, OWNER, TOKEN .. ' ' .. table.concat(ids))
  call('ZADD', SEEN, text(steady), OWNER)
  local silent = call('ZRANGEBYSCORE', SEEN, '-inf', text(steady - OWNER_REST), 'LIMIT', '0', '10')
  if #silent == 0 and call('ZCARD', SEEN) > MAX_OWNERS then
    silent = call('ZRANGE', SEEN, '0', '0')
  end
  variadic('HDEL', OWNERS, silent)
  variadic('ZREM', SEEN, silent)
end

lane_limit = tonumber(LANE_LIMIT)
end_leases()
local reaped, leases = 0, repeated()
if leases then
  place_lanes()
else
  reaped = reap()
  promote(now + LOOKAHEAD)
  unblock()
  prefetch()
  place_lanes()
  enlist()
  local before = virtual
  pick()
  local lanes
  leases, lanes = lease(steadily(now + LEASE))
  end_prefetch()
  place_lanes()
  note_full(leases, lanes)
  remember(leases)
  if state[5] ~= LANE_LIMIT then
    call('HSET', META, 'limit', LANE_LIMIT)
  end
  if virtual ~= before then
    call('HSET', META, 'virtual', text(virtual))
  end
end

local next = upcoming(math.floor(LOOKAHEAD / 2))
announce_event(next)
local more = head(DELAY) <= now + LOOKAHEAD
for health = 0, 2 do
  more = more or call('ZCARD', runnable_sets[health]) > 0
end
local reply = commit()
reply[2] = next < HUGE and next or 0
for n in pairs(freed) do
  if n.runs then -- what the owner left of the room is for others, who may sleep
    redis.pcall('PUBLISH', CHANNEL, SHARD)
    break
  end
end
local waits = not more and call('ZCARD', READY) > 0
reply[4], reply[5], reply[6], reply[7] = more and 1 or 0, waits and 1 or 0, reaped, quarantined
for i, field in ipairs(leases) do
  reply[7 + i] = field
end
return reply
