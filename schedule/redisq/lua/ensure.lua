-- ensure adds to the delay set what is absent, and changes nothing that is present.
-- KEYS: META DELAY RECORDS BLOCKED LEASES CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id record
-- Reply: now, next, seq; for each item: place before the call (0 absent, 1 delayed, 2 ready, 3 leased), due
-- Uses: begin records events

-- The first write is one that a full server refuses: then nothing at all was done.
call('HSET', META, 'clock', text(now))

local ids, wanted = column(1), column(2)
local records = fetch('HMGET', RECORDS, ids)
local claims = fetch('HMGET', CLAIMS, ids)
local scores = fetch('ZMSCORE', DELAY, ids)
local delays, additions, places = {}, {}, {}
for i, id in ipairs(ids) do
  local due = decode(records[i])
  local place
  if records[i] and claims[i] then
    place = 3
  elseif due then
    place = scores[i] and 1 or 2
  else
    if records[i] then
      set_aside(id, records[i])
    end
    local at = moment(wanted[i])
    delays[#delays + 1] = text(at)
    delays[#delays + 1] = id
    additions[#additions + 1] = id
    additions[#additions + 1] = hex(at) .. string.sub(wanted[i], 12)
    place = 0
  end
  places[#places + 1] = place
  places[#places + 1] = place > 0 and due and tonumber(due, 16) or 0
end
variadic('HSET', RECORDS, additions)
variadic('ZADD', DELAY, delays)

local reply = announce(false)
for _, one in ipairs(places) do
  reply[#reply + 1] = one
end
return reply
