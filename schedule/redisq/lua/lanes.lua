-- lanes takes over settings of lanes, each unless it is older than what the lane has.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD LANES LEASES QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: lane limit pause version
-- Reply: now, next, seq
-- Uses: begin records lanes events
call('HDEL', META, '') -- as settle does: a pause must reach a full server too

local limits, pauses, versions = column(2), column(3), column(4)
local names = column(1)
load(names)
for i, name in ipairs(names) do
  if tonumber(versions[i]) >= peek(name).version then
    local n = touch(name)
    n.limit, n.pause, n.version = tonumber(limits[i]), tonumber(pauses[i]), tonumber(versions[i])
    n.listed = true -- it may have stood among the blocked for the pause that this setting ends
  end
end
place_lanes()
return announce(woken)
