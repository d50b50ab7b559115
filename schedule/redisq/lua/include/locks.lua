-- locks reads and writes holders and waiters. Needs begin, LOCKS, WAITERS, WAITING.
--
-- LOCKS has for each lock "until id token". WAITERS has a place for each waiter: lock, ":", when it joined, ":", id,
-- lane; in each lock's order. WAITING has for each waiter's id its place, and for each lock that is kept for a waiter
-- "until id": ids have 26 characters, locks at most 22. All times are of the steady clock.

-- holder_of returns until, id and token of a lock that is held at present.
local function holder_of(lock)
  local till, id, token = string.match(call('HGET', LOCKS, lock) or '', '^(%d+) (%w+) ([%w_-]+)$')
  till = tonumber(till)
  if till and till > steady then
    return till, id, token
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
  call('ZADD', WAITERS, 0, place)
  call('HSET', WAITING, id, place)
end
