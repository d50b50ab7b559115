-- settle ends leases. For a result that won SQL's fence, it makes the index agree with SQL even without the
-- lease.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS HOLDS LANES LEASES
-- KEYS: CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id token outcome signal won hold record next
-- Outcome is acked, rescheduled, diverted or buried. Signal is 0 none, 1 answered, 2 timed out, 3 no answer.
-- Won is 1 or 0. Hold is the end of a hold in ms, or 0. Record is the item's new record; that of a divert has
-- one divert. Next is the id and the token of a prefetched lease that counts from now on, or empty.
-- Reply: now, next, seq; for each settlement: 1 applied, 2 stale, 3 gone
-- Uses: begin records changes flow lanes breaker counting events hints

-- At maxmemory, Redis refuses a script whose first write needs memory, but lets a script run to its end once
-- it has begun with a deletion, even of nothing. Settlements must work then, because they free memory.
call('HDEL', META, '')

local function count(name)
  counts[name] = (counts[name] or 0) + 1
end

-- finish ends the lease of an item. If a movement came during the lease, the item is due at the earlier of
-- the two times, and forced if the movement said so.
local function finish(id, outcome, record, wanted, moved, move_forces)
  unlease(id)
  if outcome == 'rescheduled' or outcome == 'diverted' then
    local due = math.min(moment(wanted), moved or HUGE)
    local diverts = outcome == 'diverted' and one_more(record, wanted) or ''
    postpone(id, due, redue(wanted, due, diverts, move_forces))
  elseif moved and decode(record) then
    -- The movement asks for another attempt. SQL's stamp decides whether it is made.
    postpone(id, moved, redue(record, moved, '', move_forces))
  else
    add(cut.records, id)
  end
end

-- return_token gives a lane with a rate the token of a diverted item back, because no attempt was made.
local function return_token(n, record)
  local _, kind = decode(record)
  if n.flow and n.flow.every > 0 and kind and FORCED[kind] ~= kind then
    spend(n.flow, -1)
  end
end

-- overrule settles an item that is absent, delayed or ready. The lane learns nothing and the diverts stay,
-- because this may be the repetition of a settlement whose reply was lost.
local function overrule(id, outcome, record, wanted)
  local due, kind, lane, rest = decode(record)
  if due then
    touch(lane)
    add(cut.ready, lane .. kind .. due .. id)
  end
  if outcome == 'rescheduled' or outcome == 'diverted' then
    local diverts = ''
    if outcome == 'diverted' then
      diverts = record and diverts_of(rest) or one_more(nil, wanted)
    end
    local at = moment(wanted)
    postpone(id, at, redue(wanted, at, diverts))
  elseif record then
    add(cut.delay, id)
    add(cut.records, id)
  end
end

-- hold_until starts or lengthens a lane's hold, and stores when it began. The begin has its own key: builds
-- of the same layout that do not store it could not read a lane's record with another number.
local function hold_until(n, at)
  if at <= n.hold then
    return
  end
  local since, ends = string.match(call('HGET', HOLDS, n.lane) or '', '^(%d+) (%d+)$')
  if n.hold <= steady or not since or tonumber(ends) <= steady then
    since = text(steady)
  end
  call('HSET', HOLDS, n.lane, since .. ' ' .. text(at))
  n.hold = at
end

local ids, tokens, outcomes, signals = column(1), column(2), column(3), column(4)
local wons, holds, wanted = column(5), column(6), column(7)
local nexts = {}
for _, next in ipairs(column(8)) do
  if next ~= '' then
    nexts[#nexts + 1] = string.sub(next, 1, 26)
  end
end
if #nexts > 0 then
  local claims = claims_of(nexts)
  for _, next in ipairs(column(8)) do
    count_next(claims, next)
  end
  write_changes() -- before the claims are read again: a next lease may be settled in the same call
end
local records = fetch('HMGET', RECORDS, ids)
local claims = fetch('HMGET', CLAIMS, ids)
local lanes, ours, digits, moves, forced_moves = {}, {}, {}, {}, {} -- of the leases that this call ends
for i, claim in ipairs(claims) do
  local digit, lane, token, moved, move_forces = decode_claim(claim)
  if token and token == tokens[i] then
    lanes[#lanes + 1] = lane
    ours[i], digits[i] = lane, digit
    if moved then
      moves[i], forced_moves[i] = moved, move_forces
    end
  end
end
load(lanes)
local replies = {}
for i, id in ipairs(ids) do
  local applied = true
  if ours[i] then
    local n = touch(ours[i])
    learn(n, signals[i])
    release(n, digits[i])
    if outcomes[i] == 'diverted' and signals[i] == '0' then
      return_token(n, records[i])
    end
    finish(id, outcomes[i], records[i], wanted[i], moves[i], forced_moves[i])
  elseif wons[i] == '1' and not claims[i] then
    overrule(id, outcomes[i], records[i], wanted[i])
  else
    applied = false
  end
  if applied then
    count(outcomes[i])
    local hold = tonumber(holds[i])
    if hold > now then
      local _, _, new_lane = decode(wanted[i])
      local n = touch(new_lane)
      open_tail(n)
      hold_until(n, steadily(hold))
    end
    replies[i] = 1
  else
    count('stale')
    replies[i] = (records[i] or claims[i]) and 2 or 3
  end
end
write_changes()
place_lanes()

local reply = announce(woken)
for _, one in ipairs(replies) do
  reply[#reply + 1] = one
end
return reply
