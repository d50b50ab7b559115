-- records reads and writes the record of one id. Needs begin, RECORDS, QUARANTINE.
--
-- A record is: the due time in 9 digits of base 36; the kind, f (fresh) or r (retry), or d or e for the same
-- two if the item is forced; the digits of the lane; "!", the number of diverts and the letter of the last
-- one's cause, if there are any; ":" and the lock, if it has one. With a lane of up to four digits, no
-- diverts and no lock it has 14 bytes, the most that the server keeps in 16. Numbers have no leading zeros.
-- The program's decodeRecord refuses exactly what decode refuses.
--
-- Elsewhere a lane is the number of its base 36 digits (1 to d) and the digits. That sorts as the numbers do,
-- and its end is known. A member of READY is lane, kind, due, id, so forced items come first. A claim is: the
-- lane's health at the claim, plus 3 while the lease does not count; the lane; "."; the token; and, if the
-- item was moved while it was leased, "." and the due time of the movement, with a leading zero if the
-- movement forces the item.
local RECORD = '^(' .. string.rep('[0-9a-z]', 9) .. ')([frde])([1-9a-z][0-9a-z]*)(.*)$'
local MAX_DIVERTS, MAX_LOCK = 999999999, 22
local FORCED = {f = 'd', r = 'e', d = 'd', e = 'e'} -- the forced kind of each kind
local DUE = 9 -- digits of a due time
local LATEST = 101559956668415 -- the latest due time that they hold
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
local quarantined = 0

-- readable returns whether the end of a record, after its lane, is diverts, a lock, or both.
local function readable(rest)
  local diverts, lock = string.match(rest, '^!([1-9]%d*)%l?(.*)$')
  if diverts and #diverts > 9 then
    return false
  end
  lock = lock or rest
  return lock == '' or #lock <= 1 + MAX_LOCK and string.find(lock, '^:[%w_-]+$')
end

-- overflows returns whether a lane of 13 digits is beyond 2^63 - 1, which is 1y2p0ij32e8e7. A double cannot
-- hold all of its digits.
local function overflows(lane)
  local high, low = tonumber(string.sub(lane, 1, 7), 36), tonumber(string.sub(lane, 8), 36)
  local last_high, last_low = tonumber('1y2p0ij', 36), tonumber('32e8e7', 36)
  return high > last_high or high == last_high and low > last_low
end

-- decode returns due (in its digits), kind, lane and the rest of a record; nil: the record is missing or
-- unreadable.
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

-- time_of reads the digits of a due time; digits_of writes them.
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

-- moment returns the due time of an encoded record in milliseconds. Zero means now.
local function moment(record)
  local due = time_of(string.sub(record, 1, DUE))
  return due == 0 and now or due
end

-- diverts_of returns the diverts in the rest of a record as it has them: "!", the number and the cause.
local function diverts_of(rest)
  return string.match(rest or '', '^!%d+%l?') or ''
end

local function lock_of(rest)
  return string.match(rest or '', ':.*$') or ''
end

-- one_more returns the diverts of a record after one more divert, with the cause of wanted. The record may be
-- nil.
local function one_more(record, wanted)
  local _, _, _, rest = decode(record)
  local _, _, _, one = decode(wanted)
  local diverts = tonumber(string.match(rest or '', '^!(%d+)')) or 0
  return '!' .. text(math.min(diverts + 1, MAX_DIVERTS)) .. (string.match(one or '', '^!%d+(%l)') or '')
end

-- redue returns an encoded record with another due time and other diverts. With forced it makes the item
-- forced.
local function redue(record, due, diverts, forced)
  local _, kind, lane, rest = decode(record)
  local head = digits_of(due) .. (forced and FORCED[kind] or kind) .. string.sub(lane, 2)
  return head .. diverts .. lock_of(rest)
end

-- decode_claim returns the first digit, lane and token of a claim, and the due time of a movement, if there
-- is one, and whether that forces the item.
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

-- is_counted returns whether a lease counts towards its lane's concurrency. digit is the first one of its
-- claim.
local function is_counted(digit)
  return digit < '3'
end

-- set_aside copies an unreadable record into QUARANTINE, where operators find it, so that it does not block
-- other items. The caller removes or replaces the record. A missing record is only counted.
local function set_aside(id, record)
  quarantined = quarantined + 1
  if record then
    call('HSET', QUARANTINE, id, record)
  end
end
