-- move gives items another due time. A leased item stays leased and remembers the movement until its lease is
-- settled or reaped.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS
-- KEYS: QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id due forced
-- Due is in ms; 0 means now. Forced is 1, or 0 to leave the item as it is.
-- Reply: now, next, seq; for each movement: 1 moved, 2 gone, 3 blocked (see schedule.MovedBlocked)
-- Uses: begin records changes flow lanes events hints
call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua

-- blocked returns whether the lane delays an item, whatever room it has. A pause alone delays a forced item.
-- A token that comes within KEEP_FOR_WAITER delays nothing: if the item is a lock's next waiter, the lock is
-- kept for it that long.
local function blocked(n, forced)
  if n.pause > now or forced then
    return n.pause > now
  end
  local stop = stopped_until(n)
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
    local digit, claimed_lane, token, moved, move_forces = decode_claim(claims[i])
    if digit then
      at = math.min(at, moved or HUGE)
      local movement = ((forced or move_forces) and '.0' or '.') .. text(at)
      add(put.claims, id, digit .. claimed_lane .. '.' .. token .. movement)
    end
    replies[i] = 3
  elseif due then
    local n = touch(lane)
    add(cut.ready, lane .. kind .. due .. id)
    postpone(id, at, redue(records[i], at, diverts_of(rest), forced))
    replies[i] = blocked(n, forced or FORCED[kind] == kind) and 3 or 1
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
