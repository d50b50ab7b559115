-- counting changes which leases count towards the concurrency of their lanes. Needs begin, records, changes,
-- lanes.

-- set_counted makes a lease count or not, if it exists under the token. claims has the claims that were read,
-- by id. It returns the lane if the count has changed. While the lane's breaker is open, a lease goes on
-- counting until it is settled: otherwise a claim could lease a second probe.
local function set_counted(claims, id, token, counts)
  local claim = claims[id]
  local digit, lane, held = decode_claim(claim)
  if held ~= token or is_counted(digit) == counts then
    return nil
  end
  local n = touch(lane)
  if not counts and n.flow and n.flow.probe > 0 then
    return nil
  end
  n.leases = math.max(n.leases + (counts and 1 or -1), 0)
  claims[id] = string.char(string.byte(claim) + (counts and -3 or 3)) .. string.sub(claim, 2)
  add(put.claims, id, claims[id])
  return n
end

-- count_next counts a prefetched lease whose attempt took the place of an ended one. next is its id and
-- token; empty: none.
local function count_next(claims, next)
  if next ~= '' then
    set_counted(claims, string.sub(next, 1, 26), string.sub(next, 27), true)
  end
end

-- claims_of reads the claims of ids, and returns them by id.
local function claims_of(ids)
  local claims = {}
  for i, claim in ipairs(fetch('HMGET', CLAIMS, ids)) do
    claims[ids[i]] = claim
  end
  return claims
end
