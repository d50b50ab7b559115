-- locks reads and writes holders and waiters. Needs begin, LOCKS, WAITERS, WAITING.
--
-- LOCKS has for each lock "until id token" of its holder, and then the same of each heir: an attempt that was adopted while
-- another had the lock, and that has it next. WAITERS has a place for each waiter: lock, ":", when it joined, ":", id,
-- lane; in each lock's order. WAITING has for each waiter's id its place, and for each lock that is kept for a waiter
-- "until id": ids have 26 characters, locks at most 22. All times are of the steady clock.

-- holders_of returns those who have a lock, one after the other: the holder, its heirs. Whose time is over is left out.
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

-- hold writes those who have a lock; none: it is free.
local function hold(lock, holders)
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

-- place_of returns at which place among the holders an attempt is.
local function place_of(holders, id, token)
  for i, one in ipairs(holders) do
    if one.id == id and one.token == token then
      return i
    end
  end
end

-- kept_for returns until when, and for whom, a free lock is kept at present.
local function kept_for(lock)
  local till, id = string.match(call('HGET', WAITING, lock) or '', '^(%d+) (%w+)$')
  till = tonumber(till)
  if till and till > steady then
    return till, id
  end
end

-- split_place returns lock, id and lane of a place.
local function split_place(place)
  local lock, rest = string.match(place, '^([%w_-]+):%x+:(%w+)$')
  if rest and #rest > 26 then
    return lock, string.sub(rest, 1, 26), string.sub(rest, 27)
  end
end

-- leave takes an id out of the lock's queue, if it is there.
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

-- wait lets an id join the lock's queue, unless it stands there.
local function wait(lock, id, lane)
  local place = call('HGET', WAITING, id)
  if place then
    if string.sub(place, 1, #lock + 1) == lock .. ':' then
      return
    end
    call('ZREM', WAITERS, place) -- it waits for another lock than before
  end
  -- Places are in the order of time, and count on within a millisecond.
  local last = tonumber(call('HGET', META, 'place')) or 0
  last = math.max(last + 1, steady * 1024)
  call('HSET', META, 'place', text(last))
  place = lock .. ':' .. string.format('%013x', last) .. ':' .. id .. lane
  call('ZADD', WAITERS, '0', place)
  call('HSET', WAITING, id, place)
end
