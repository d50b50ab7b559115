-- claim first ends the counting of ended leases, then reaps, promotes and leases. If TOKEN is that of the
-- owner's last claim, it only ends the counting and returns what is still leased of that batch.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS
-- KEYS: OWNERS SEEN QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD OWNER TOKEN MAX MAX_UNCERTAIN MAX_TIMING_OUT LEASE LANE_LIMIT
-- ARGV: LOOKAHEAD PREFETCH
-- EACH: id token next
-- PREFETCH is "lane most " for each lane that may lease more than its concurrency. LEASE and LOOKAHEAD are in
-- ms. Each element is a lease whose attempt has ended: it counts no longer. next is the id and the token of a
-- prefetched lease that took its place and counts from now on, or empty.
-- Reply: now, next, seq, more, waiting, reaped, quarantined; for each lease: id, record, health, until
-- The health of a lease is increased by 3 if its lane has more ready items but no room, and by 6 if it was
-- prefetched.
-- Uses: begin records changes flow lanes counting picking events
local MAX_UNBLOCK, OWNER_REST = '256', 86400000 -- in lanes, and in ms

if state[6] then
  return redis.error_reply('REBUILDING the shard is closed for claims')
end
call('HDEL', META, '') -- a full server runs a script that begins with a deletion: claims make room

-- repeated returns what is still leased of the owner's last claim, or nil if this is a new claim. It reports
-- every lane as full. If one is not, the claimer only names ended leases without need.
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
      local l, health = #leases, digit % 3 + 3 + (is_counted(digit) and 0 or 6)
      leases[l + 1], leases[l + 2] = ids[i], records[i]
      leases[l + 3], leases[l + 4] = health, wall(tonumber(ends[i]))
    end
  end
  return leases
end

-- end_leases stops counting leases whose attempts have ended, and counts the prefetched leases that took
-- their places.
local freed = {} -- lanes that count fewer leases now

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

-- prefetch allows lanes to lease more than their concurrency, until end_prefetch.
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

-- reap returns expired leases to the delay set, at most MAX_REAP, and returns their number. The leases of a
-- process that died end together, so the due times are spread by the ids over REAP_SPREAD ms.
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

-- promote takes items that are due at by or before out of the delay set and collects them in n.promoted of
-- their lanes. It does not write them to READY yet: if they are all that the lane has, an item that is leased
-- at once need not be written there. enlist or lease must follow.
local promoted = {} -- lanes with promoted items
local record_of = {} -- the records of promoted ids

-- had_none returns whether the lane surely had no ready items, if it is in no runnable set: no limit blocked
-- it, and it has had room since before this claim.
local function had_none(n)
  local unlimited = n.hold == 0 and n.pause == 0 and not n.flow
  local unchanged = not n.reaped and not freed[n] and state[5] == LANE_LIMIT
  return unlimited and unchanged and concurrency(n) > n.leases
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

-- enlist writes promoted items to READY, unless they are all that a lane has and the lane may give them now.
-- lease writes the rest of those.
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

-- unblock touches lanes whose pause, hold, breaker or empty rate may have ended.
local function unblock()
  for _, lane in ipairs(call('ZRANGEBYSCORE', BLOCKED, '-inf', text(now), 'LIMIT', '0', MAX_UNBLOCK)) do
    touch(lane).listed = true
  end
  for _, lane in ipairs(call('ZRANGEBYSCORE', HELD, '-inf', text(steady), 'LIMIT', '0', MAX_UNBLOCK)) do
    touch(lane).listed = true
  end
end

-- is_current returns whether a member of READY agrees with the id's record. Most records end after the lane.
local function is_current(member, n, id, record)
  local kind = #n.lane + 1
  n.digits = n.digits or string.sub(n.lane, 2)
  if record == string.sub(member, kind + 1, kind + DUE) .. string.sub(member, kind, kind) .. n.digits then
    return true
  end
  local due, fresh, lane = decode(record)
  return due and lane .. fresh .. due .. id == member
end

-- lease writes the picked items as leased until a time of the steady clock, and the other promoted items to
-- READY. It returns the leases as in the reply, and their lanes. A picked member without a matching record is
-- removed.
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
      leases[l + 1], leases[l + 2] = id, record
      leases[l + 3], leases[l + 4] = n.health + (prefetched[i] and 6 or 0), replied
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

-- note_full adds 3 to the health of leases whose lanes have more ready items but no room.
local function note_full(leases, lanes)
  for i, n in ipairs(lanes) do
    if n.full then
      leases[i * 4 - 1] = leases[i * 4 - 1] + 3
    end
  end
end

-- remember stores the claim as its owner's last one. It removes owners that have not claimed for OWNER_REST,
-- and the oldest one if there are more than MAX_OWNERS.
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
  if n.runs then -- the lane has room left for other owners, whose claimers may sleep
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
