-- scan lists the items of the shard, about LIMIT on a page. It writes nothing.
-- KEYS: META DELAY RECORDS CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET CURSOR LIMIT
-- Reply: the next cursor ("0": this was the last page); for each item: id, record, place (1 delayed, 2 ready,
-- 3 leased)
-- Uses: begin records
local page = call('HSCAN', RECORDS, CURSOR, 'COUNT', LIMIT)
local ids, records = {}, {}
for i = 1, #page[2], 2 do
  ids[#ids + 1] = page[2][i]
  records[#records + 1] = page[2][i + 1]
end
local scores = fetch('ZMSCORE', DELAY, ids)
local reply = {page[1]}
for i, claim in ipairs(fetch('HMGET', CLAIMS, ids)) do
  if decode(records[i]) then
    reply[#reply + 1] = ids[i]
    reply[#reply + 1] = records[i]
    reply[#reply + 1] = claim and 3 or scores[i] and 1 or 2
  end
end
return reply
