-- lookup says where items are. It writes nothing.
-- KEYS: META DELAY RECORDS CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET
-- EACH: id
-- Reply: now, 0, 0; for each id: place (0 absent, 1 delayed, 2 ready, 3 leased), due
-- Uses: begin records
local ids = column(1)
local records = fetch('HMGET', RECORDS, ids)
local claims = fetch('HMGET', CLAIMS, ids)
local reply = {now, 0, 0}
for i, score in ipairs(fetch('ZMSCORE', DELAY, ids)) do
  local due = decode(records[i])
  local place = due and (score and 1 or 2) or 0
  if records[i] and claims[i] then
    place = 3
  end
  reply[#reply + 1] = place
  reply[#reply + 1] = due and tonumber(due, 16) or 0
end
return reply
