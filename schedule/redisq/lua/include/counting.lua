-- counting changes which leases count towards the concurrency of their lanes. Needs begin, records, changes,
-- lanes.

-- set_counted has a lease count, or not, if it is leased under that token; claims are what was read, by id.
-- In a lane whose breaker is open a lease that counts goes on counting. It returns the lane if it has
-- changed.
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

-- A next is an id and a token, or empty.
local function count_next(claims, next)
  if next ~= '' then
    set_counted(claims, string.sub(next, 1, 26), string.sub(next, 27), true)
  end
end

-- claims_of reads the claims of ids, by id.
local function claims_of(ids)
  local claims = {}
  for i, claim in ipairs(fetch('HMGET', CLAIMS, ids)) do
    claims[ids[i]] = claim
  end
  return claims
end
