-- extend sets later ends for leases, and returns for each whether it still exists under its token.
-- KEYS: META DELAY BLOCKED HELD LEASES CLAIMS RECORDS QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id token until
-- Reply: now, next, seq; for each lease: 1 it exists, 0 it does not
-- Uses: begin records events hints
call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua

local ids, tokens, ends = column(1), column(2), column(3)
local now_ends = fetch('ZMSCORE', LEASES, ids)
local replies, later = {}, {}
for i, claim in ipairs(fetch('HMGET', CLAIMS, ids)) do
  local _, _, token = decode_claim(claim)
  local mine = token and token == tokens[i] and now_ends[i]
  replies[i] = mine and 1 or 0
  local ending = steadily(tonumber(ends[i]))
  if mine and ending > tonumber(now_ends[i]) then
    later[#later + 1] = text(ending)
    later[#later + 1] = ids[i]
  end
end
variadic('ZADD', LEASES, later)

local reply = announce(false)
for _, one in ipairs(replies) do
  reply[#reply + 1] = one
end
return reply
