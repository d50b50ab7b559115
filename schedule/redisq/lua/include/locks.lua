-- locks reads and writes the holders and the waiters of locks. Needs begin, LOCKS, WAITERS, WAITING.
--
-- LOCKS has for each lock "until id token" of its holder, followed by the same of each next holder: an
-- attempt that was adopted while another had the lock (docs/adr/0014). WAITERS has an entry for each waiter:
-- lock, ":", its number, ":", id, lane. They sort by lock and number. WAITING has for each waiter's id its
-- entry, and for each lock that is kept for a waiter "until id". Ids have 26 characters and locks at most 22,
-- so these names never collide. All times are on the steady clock.

-- holders_of returns the holders of a lock, in order, without those whose time is over.
local function holders_of(lock)
  local holders = {}
  for till, id, token in string.gmatch(call('HGET', LOCKS, lock) or '', '(%d+) (%w+) ([%w_-]+)') do
    till = tonumber(till)
    if till > steady then
      holders[#holders + 1] = { till = till, id = id, token = token }
    end
  end
  return holders
end

-- write_holders writes the holders of a lock; without holders it is free.
local function write_holders(lock, holders)
  local parts = {}
  for i, one in ipairs(holders) do
    parts[i] = text(one.till) .. ' ' .. one.id .. ' ' .. one.token
  end
  if #parts == 0 then
    call('HDEL', LOCKS, lock)
  else
    call('HSET', LOCKS, lock, table.concat(parts, ' '))
  end
end

-- holder_index returns the position of an attempt among the holders, or nil.
local function holder_index(holders, id, token)
  for i, one in ipairs(holders) do
    if one.id == id and one.token == token then
      return i
    end
  end
end

-- kept_for returns until when a free lock is kept for a waiter, and the waiter's id; nil: it is not kept.
local function kept_for(lock)
  local till, id = string.match(call('HGET', WAITING, lock) or '', '^(%d+) (%w+)$')
  till = tonumber(till)
  if till and till > steady then
    return till, id
  end
end

-- split_place returns the lock, the id and the lane of a waiter's entry.
local function split_place(place)
  local lock, rest = string.match(place, '^([%w_-]+):%x+:(%w+)$')
  if rest and #rest > 26 then
    return lock, string.sub(rest, 1, 26), string.sub(rest, 27)
  end
end

-- leave removes an id from the lock's queue, if it waits there.
local function leave(lock, id)
  local place = call('HGET', WAITING, id)
  if place and string.sub(place, 1, #lock + 1) == lock .. ':' then
    call('ZREM', WAITERS, place)
    call('HDEL', WAITING, id)
    local _, kept = kept_for(lock)
    if kept == id then
      call('HDEL', WAITING, lock)
    end
  end
end

-- wait appends an id to the lock's queue. An id that already waits there keeps its place.
local function wait(lock, id, lane)
  local place = call('HGET', WAITING, id)
  if place then
    if string.sub(place, 1, #lock + 1) == lock .. ':' then
      return
    end
    call('ZREM', WAITERS, place) -- it waited for another lock before
  end
  -- The numbers follow the time. Within a millisecond they count on.
  local last = tonumber(call('HGET', META, 'place')) or 0
  last = math.max(last + 1, steady * 1024)
  call('HSET', META, 'place', text(last))
  place = lock .. ':' .. string.format('%013x', last) .. ':' .. id .. lane
  call('ZADD', WAITERS, '0', place)
  call('HSET', WAITING, id, place)
end
