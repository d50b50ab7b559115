-- lookup returns the positions of items. It writes nothing.
-- KEYS: META DELAY READY RECORDS LEASES CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET
-- EACH: id
-- Reply: now, 0, 0; for each id: place (0 absent, 1 delayed, 2 ready, 3 leased), due
-- Uses: begin records places
local ids = column(1)
local records = fetch('HMGET', RECORDS, ids)
local reply = {now, 0, 0}
for i, place in ipairs(places_of(ids, records)) do
  local due = decode(records[i])
  reply[#reply + 1] = place
  reply[#reply + 1] = place > 0 and due and time_of(due) or 0
end
return reply
