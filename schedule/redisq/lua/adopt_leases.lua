-- adopt puts running attempts in as leased. An item that is leased under another token stays as it is.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES CLAIMS
-- KEYS: QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: id token until record
-- Reply: now, next, seq
-- Uses: begin records changes flow lanes events hints
keep_clock() -- the first write is one that a full server refuses, so that nothing is half done

local ids, tokens, ends, wanted = column(1), column(2), column(3), column(4)
local records = fetch('HMGET', RECORDS, ids)
local claims = fetch('HMGET', CLAIMS, ids)
local scores = fetch('ZMSCORE', LEASES, ids)
for i, id in ipairs(ids) do
  local due, kind, lane, rest = decode(records[i])
  if claims[i] then
    local _, _, token = decode_claim(claims[i])
    local ending = steadily(tonumber(ends[i]))
    if token == tokens[i] and ending > tonumber(scores[i] or 0) then
      add(put.leases, text(ending), id)
    end
  else
    if due then
      touch(lane)
      add(cut.ready, lane .. kind .. due .. id)
      add(cut.delay, id)
    elseif records[i] then
      set_aside(id, records[i])
    end
    local _, _, new_lane = decode(wanted[i])
    local n = touch(new_lane)
    n.leases = n.leases + 1
    add(put.records, id, redue(wanted[i], moment(wanted[i]), diverts_of(rest)))
    add(put.leases, text(steadily(tonumber(ends[i]))), id)
    add(put.claims, id, n.health .. new_lane .. '.' .. tokens[i])
  end
end
write_changes()
place_lanes()
return announce(woken)
