-- places finds the places of items. Needs begin, records, DELAY, READY, LEASES, CLAIMS.
--
-- places_of returns for each id its place (0 absent, 1 delayed, 2 ready, 3 leased), and for leased ones the
-- end of the lease, if it is known. Most calls, and all calls of a rebuild, are about absent items. So it
-- reads DELAY and CLAIMS only for ids with a record, and READY only for those that are in neither.

local function places_of(ids, records)
  local places, ends, at, present = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    places[i] = 0
    if records[i] then
      at[#at + 1] = i
      present[#present + 1] = id
    end
  end
  local scores, leased, asked, listed, members = fetch('ZMSCORE', DELAY, present), {}, {}, {}, {}
  for k, claim in ipairs(fetch('HMGET', CLAIMS, present)) do
    local i = at[k]
    local due, kind, lane = decode(records[i])
    if decode_claim(claim) then
      places[i] = 3
      leased[#leased + 1], asked[#asked + 1] = i, ids[i]
    elseif due and scores[k] then
      places[i] = 1
    elseif due then
      listed[#listed + 1], members[#members + 1] = i, lane .. kind .. due .. ids[i]
    end
  end
  for k, score in ipairs(fetch('ZMSCORE', READY, members)) do
    if score then
      places[listed[k]] = 2
    else -- if it has a lease without a claim, it counts as leased and will be reaped
      leased[#leased + 1], asked[#asked + 1] = listed[k], ids[listed[k]]
    end
  end
  for k, score in ipairs(fetch('ZMSCORE', LEASES, asked)) do
    if score then
      places[leased[k]], ends[leased[k]] = 3, score
    end
  end
  return places, ends
end
