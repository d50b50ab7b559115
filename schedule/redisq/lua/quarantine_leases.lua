-- quarantine ends leases whose records the program cannot read, though the scripts may, and moves the records
-- into QUARANTINE.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS
-- KEYS: QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD TOKEN
-- EACH: id
-- Reply: now, next, seq
-- Uses: begin records changes flow lanes events hints
call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua

local ids = column(1)
local records = fetch('HMGET', RECORDS, ids)
for i, claim in ipairs(fetch('HMGET', CLAIMS, ids)) do
  local digit, lane, token = decode_claim(claim)
  if token == TOKEN then
    release(touch(lane), digit)
    unlease(ids[i])
    set_aside(ids[i], records[i])
    add(cut.records, ids[i])
  end
end
write_changes()
place_lanes()

return announce(woken)
