-- intact checks by sizes whether a key of the shard is missing that must exist: a person deleted it, or the
-- server evicted it. If only SQL has what was in the key, the script makes the shard lost: it deletes the
-- generation.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD LANES LEASES CLAIMS
-- ARGV: GENERATION OFFSET
-- Reply: now, 0, 0, then a word for each missing key; "items" stands for any key that an audit can repair
-- Uses: begin
local delayed, ready, leased = call('ZCARD', DELAY), call('ZCARD', READY), call('ZCARD', LEASES)
local records, claimed, lanes = call('HLEN', RECORDS), call('HLEN', CLAIMS), call('HLEN', LANES)
local standing = 0
for _, key in ipairs({UNPROVEN, ANSWERING, TIMING_OUT, BLOCKED, HELD}) do
  standing = standing + call('ZCARD', key)
end

local reply = {now, 0, 0}
if records == 0 and delayed + ready + claimed + leased > 0 then
  reply[#reply + 1] = 'records'
end
if lanes == 0 and (state[8] or ready + claimed + standing > 0) then
  reply[#reply + 1] = 'lanes'
end
if #reply > 3 then
  call('HDEL', META, 'generation')
elseif records ~= delayed + ready + claimed or claimed ~= leased then
  reply[#reply + 1] = 'items'
end
return reply
