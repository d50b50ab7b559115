-- breakers returns lanes whose breaker is open, those that opened first. It writes nothing.
-- KEYS: META BREAKERS
-- ARGV: GENERATION OFFSET LIMIT
-- Reply: now, 0, 0, the lanes
-- Uses: begin
local reply = {now, 0, 0}
for i, lane in ipairs(call('ZRANGE', BREAKERS, 0, tonumber(LIMIT) - 1)) do
  reply[3 + i] = lane
end
return reply
