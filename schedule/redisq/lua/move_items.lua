-- move gives items another due time. A leased one remembers it until its lease is settled or reaped.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id due forced
-- Due in ms; 0 means now. Forced is 1, or 0: as it is.
-- Reply: now, next, seq; for each movement: 1 moved, 2 gone, 3 held
-- Uses: begin records changes flow lanes events hints
call('HDEL', META, '') -- as settle does

-- held says whether the lane keeps an item back, forced or not, however much room it has. A token that comes sooner than a lock would
-- be kept for a waiter is not worth passing one over.
local function held(n, forced)
  if n.pause > now or forced then
    return n.pause > now
  end
  local stop = stop_of(n)
  return stop > 0 and (n.hold > steady or n.flow.probe > steady or stop > steady + KEEP_FOR_WAITER)
end

local ids, dues, forces = column(1), column(2), column(3)
local records = fetch('HMGET', RECORDS, ids)
local claims = fetch('HMGET', CLAIMS, ids)
local replies = {}
for i, id in ipairs(ids) do
  local due, kind, lane, rest = decode(records[i])
  local at, forced = tonumber(dues[i]), forces[i] == '1'
  at = at > 0 and at or now
  if claims[i] then
    local digit, home, token, moved, pushed = decode_claim(claims[i])
    if digit then
      at = math.min(at, moved or HUGE)
      add(put.claims, id, digit .. home .. '.' .. token .. ((forced or pushed) and '.0' or '.') .. text(at))
    end
    replies[i] = 3
  elseif due then
    local n = touch(lane)
    add(cut.ready, lane .. kind .. due .. id)
    postpone(id, at, redue(records[i], at, diverts_of(rest), forced))
    replies[i] = held(n, forced or FORCED[kind] == kind) and 3 or 1
  else
    if records[i] then
      set_aside(id, records[i])
      add(cut.delay, id)
      add(cut.records, id)
    end
    replies[i] = 2
  end
end
write_changes()
place_lanes()

local reply = announce(woken)
for _, one in ipairs(replies) do
  reply[#reply + 1] = one
end
return reply
