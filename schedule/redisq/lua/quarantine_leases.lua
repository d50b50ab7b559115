-- quarantine sets aside records of leases that the program cannot read, whatever this script makes of them,
-- and ends the leases.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD TOKEN
-- EACH: id
-- Reply: now, next, seq
-- Uses: begin records changes flow lanes events hints
call('HDEL', META, '') -- as settle does

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
