-- records reads and writes what the shard knows of one id. Needs begin, RECORDS, QUARANTINE.
--
-- A record is: due in 9 digits of base 36, then its kind, f (fresh) or r (retry), or d or e for the same two
-- if it is forced; the digits of the lane, "!" and the diverts if there are any, ":" and the lock if there is
-- one. With a lane of up to four digits and neither of these it is 14 bytes long, the most that the server
-- keeps in 16. Numbers are written without zeros before them; the program's decodeRecord refuses what decode
-- refuses, and nothing else. Everywhere else a lane is the count of its digits (1 to d), then those, in base
-- 36: that sorts as the numbers do, and ends by itself. A member of READY is lane, kind, due, id: what is
-- forced comes first. A claim is: the health of the lane when it was claimed, and 3 more while it does not
-- count towards the lane's concurrency; the lane, ".", the token, and "." and the due time of a movement that
-- came while it was leased, if one did, with a zero before it if that forced the item.
local RECORD = '^(' .. string.rep('[0-9a-z]', 9) .. ')([frde])([1-9a-z][0-9a-z]*)(.*)$'
local MAX_DIVERTS, MAX_LOCK = 999999999, 22
local FORCED = {f = 'd', r = 'e', d = 'd', e = 'e'} -- the kind that each becomes
local DUE = 9 -- digits of a due time
local LATEST = 101559956668415 -- what they hold
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
local quarantined = 0

-- readable says whether what a record has after its lane is diverts, a lock, or both.
local function readable(rest)
  local diverts, lock = string.match(rest, '^!([1-9]%d*)(.*)$')
  if diverts and #diverts > 9 then
    return false
  end
  lock = lock or rest
  return lock == '' or #lock <= 1 + MAX_LOCK and string.find(lock, '^:[%w_-]+$')
end

-- overflows says whether a lane of 13 digits is beyond 2^63 - 1, which is 1y2p0ij32e8e7. A double does not
-- hold all of it.
local function overflows(lane)
  local high, low = tonumber(string.sub(lane, 1, 7), 36), tonumber(string.sub(lane, 8), 36)
  local last_high, last_low = tonumber('1y2p0ij', 36), tonumber('32e8e7', 36)
  return high > last_high or high == last_high and low > last_low
end

-- decode returns due (still in its digits), kind, lane and the rest, or nothing where the record cannot be read.
local function decode(record)
  if not record then
    return nil
  end
  local due, kind, lane, rest = string.match(record, RECORD)
  if not due or #lane > 13 or #lane == 13 and overflows(lane) or rest ~= '' and not readable(rest) then
    return nil
  end
  return due, kind, string.sub(DIGITS, #lane + 1, #lane + 1) .. lane, rest
end

-- time_of reads the digits of a due time, and digits_of writes them.
local function time_of(due)
  return tonumber(due, 36)
end

local function digits_of(due)
  due = math.min(math.max(due, 0), LATEST)
  local digits = {}
  for i = DUE, 1, -1 do
    local digit = due % 36
    digits[i] = string.sub(DIGITS, digit + 1, digit + 1)
    due = (due - digit) / 36
  end
  return table.concat(digits)
end

-- moment reads a due time in milliseconds from a record as the caller encodes it: zero means now.
local function moment(record)
  local due = time_of(string.sub(record, 1, DUE))
  return due == 0 and now or due
end

local function diverts_of(rest)
  return tonumber(string.match(rest or '', '^!(%d+)')) or 0
end

local function lock_of(rest)
  return string.match(rest or '', ':.*$') or ''
end

-- redue gives an encoded record another due time and count of diverts, and, if it is to be so, forces the item.
local function redue(record, due, diverts, forced)
  local _, kind, lane, rest = decode(record)
  local count = diverts > 0 and '!' .. text(math.min(diverts, MAX_DIVERTS)) or ''
  return digits_of(due) .. (forced and FORCED[kind] or kind) .. string.sub(lane, 2) .. count .. lock_of(rest)
end

-- decode_claim returns its first digit, lane, token, movement (a number, or nil) and whether that forced the
-- item.
local function decode_claim(claim)
  if not claim then
    return nil
  end
  local digit, lane, token, moved = string.match(claim, '^([0-5])([1-9a-d][0-9a-z]+)%.([%w_-]+)%.?(%d*)$')
  if not moved or moved == '' then
    return digit, lane, token
  end
  return digit, lane, token, tonumber(moved), string.byte(moved) == 48
end

-- is_counted says whether a claim with that first digit counts towards its lane's concurrency.
local function is_counted(digit)
  return digit < '3'
end

-- set_aside keeps a record that cannot be read where people find it, so that it never stops the others. Of one that is gone
-- there is nothing to keep.
local function set_aside(id, record)
  quarantined = quarantined + 1
  if record then
    call('HSET', QUARANTINE, id, record)
  end
end
