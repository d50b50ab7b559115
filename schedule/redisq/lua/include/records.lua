-- records reads and writes what the shard knows of one id. Needs begin, RECORDS, QUARANTINE.
--
-- A record is: due in 11 hexadecimal digits, then f (fresh) or r (retry), the lane, "!" and the diverts if there are
-- any, ":" and the lock if there is one. A lane is its count of hexadecimal digits (1 to g, base 17), then those
-- digits: that sorts as the numbers do, and ends by itself. A member of READY is lane, f or r, due, id.
-- A claim is: the health of the lane when it was claimed, the lane, ".", the token, and "." and the due time of a
-- movement that came while it was leased, if one did.
local RECORD = '^(%x%x%x%x%x%x%x%x%x%x%x)([fr])([1-9a-g])(%x+)(.*)$'
local LATEST = 17592186044415 -- what 11 hexadecimal digits hold
local quarantined = 0

-- decode returns due (still in hexadecimal), kind, lane and the rest, or nothing where the record cannot be read.
local function decode(record)
  if not record then
    return nil
  end
  local due, kind, digits, lane, rest = string.match(record, RECORD)
  if not due or #lane ~= tonumber(digits, 17) then
    return nil
  end
  if rest ~= '' and not string.find(rest, '^!%d+$') and not string.find(rest, '^:[%w_-]+$')
    and not string.find(rest, '^!%d+:[%w_-]+$') then
    return nil
  end
  return due, kind, digits .. lane, rest
end

local function hex(due)
  return string.format('%011x', math.min(math.max(due, 0), LATEST))
end

-- moment reads a due time in milliseconds from a record as the caller encodes it: zero means now.
local function moment(record)
  local due = tonumber(string.sub(record, 1, 11), 16)
  return due == 0 and now or due
end

local function diverts_of(rest)
  return tonumber(string.match(rest or '', '^!(%d+)')) or 0
end

local function lock_of(rest)
  return string.match(rest or '', ':.*$') or ''
end

-- redue gives an encoded record another due time and count of diverts.
local function redue(record, due, diverts)
  local _, kind, lane, rest = decode(record)
  return hex(due) .. kind .. lane .. (diverts > 0 and '!' .. diverts or '') .. lock_of(rest)
end

-- decode_claim returns health, lane, token and movement (a number, or nil).
local function decode_claim(claim)
  if not claim then
    return nil
  end
  local health, lane, token, moved = string.match(claim, '^([012])([1-9a-g]%x+)%.([%w_-]+)%.?(%d*)$')
  return health, lane, token, tonumber(moved)
end

-- set_aside keeps a record that cannot be read where people find it, so that it never stops the others. Of one that is gone
-- there is nothing to keep.
local function set_aside(id, record)
  quarantined = quarantined + 1
  if record then
    call('HSET', QUARANTINE, id, record)
  end
end
