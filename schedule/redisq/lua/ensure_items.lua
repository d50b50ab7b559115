-- ensure adds absent items to the delay set, unless they are due beyond the watermark. It changes no present
-- item. But an item that has lost its place, or the end of its lease, because a key of the shard is missing,
-- gets it back.
-- KEYS: META DELAY READY RECORDS BLOCKED HELD LEASES CLAIMS QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id record
-- Reply: now, next, seq; for each item: place before the call (0 absent, 1 delayed, 2 ready, 3 leased), due
-- Uses: begin records places events hints

-- The first write is one that a full server refuses, so that nothing is half done.
keep_clock()

local ids, wanted = column(1), column(2)
local records = fetch('HMGET', RECORDS, ids)
local places, ends = places_of(ids, records)
local delays, additions, leases, replies, beyond = {}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  local record, place, due = records[i], places[i], nil
  if record then
    local rest
    local _
    due, _, _, rest = decode(record)
    if place == 3 and not ends[i] then
      leases[#leases + 1] = text(steady) -- it is reaped next, as after an audit
      leases[#leases + 1] = id
    elseif place == 0 and due then
      record = redue(wanted[i], moment(wanted[i]), diverts_of(rest))
    elseif place == 0 then
      set_aside(id, record)
      record = nil
    end
  end
  if place == 0 then
    local when, encoded = time_of(string.sub(wanted[i], 1, DUE)), record or wanted[i]
    if when == 0 then
      when, encoded = now, digits_of(now) .. string.sub(encoded, DUE + 1)
    end
    if when > latest_due then
      beyond[#beyond + 1] = records[i] and id or nil
    else
      delays[#delays + 1] = text(when)
      delays[#delays + 1] = id
      additions[#additions + 1] = id
      additions[#additions + 1] = encoded
    end
  end
  replies[#replies + 1] = place
  replies[#replies + 1] = place > 0 and due and time_of(due) or 0
end
variadic('HSET', RECORDS, additions)
variadic('ZADD', DELAY, delays)
variadic('ZADD', LEASES, leases)
variadic('HDEL', RECORDS, beyond)

local reply = announce(false)
for _, one in ipairs(replies) do
  reply[#reply + 1] = one
end
return reply
