-- cancel removes items that are delayed or ready. A leased item stays: its holder settles it.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS
-- KEYS: QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id
-- Reply: now, next, seq; for each id: place before the call (0 absent, 1 delayed, 2 ready, 3 leased), due
-- Uses: begin records changes flow lanes events hints
call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua

local ids = column(1)
local records = fetch('HMGET', RECORDS, ids)
local claims = fetch('HMGET', CLAIMS, ids)
local scores = fetch('ZMSCORE', DELAY, ids)
local places = {}
for i, id in ipairs(ids) do
  local due, kind, lane = decode(records[i])
  local place = 0
  if claims[i] then
    place = 3
  elseif records[i] then
    place = scores[i] and 1 or 2
    add(cut.delay, id)
    add(cut.records, id)
    if due and place == 2 then
      touch(lane)
      add(cut.ready, lane .. kind .. due .. id)
    end
  end
  places[#places + 1] = place
  places[#places + 1] = due and time_of(due) or 0
end
write_changes()
place_lanes()

-- The announced event may be gone. Then the announcement moves to the next event, so that an earlier one
-- brings a hint again. A claimer that still wakes for the old event finds nothing.
announce_event(math.max(announced, upcoming()))
local reply = announce(false)
for _, one in ipairs(places) do
  reply[#reply + 1] = one
end
return reply
