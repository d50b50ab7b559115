-- release releases locks. It answers each with the first waiter that may run, and keeps the lock for it for a
-- moment.
-- KEYS: META LOCKS WAITERS WAITING
-- ARGV: GENERATION OFFSET
-- EACH: lock id token gone skip
-- Gone and skip are ids of 26 characters without separators: waiters that no longer exist, and waiters that
-- cannot run now.
-- Reply: now, 0, seq; for each lock: the waiter's id and its lane, both empty if there is none
-- Uses: begin locks
call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua

local function ids_of(joined)
  local ids = {}
  for first = 1, #joined, 26 do
    ids[#ids + 1] = string.sub(joined, first, first + 25)
  end
  return ids
end

-- next_waiter returns the id and the lane of the first waiter that is not skipped.
local function next_waiter(lock, skipped)
  local skip = {}
  for _, id in ipairs(skipped) do
    skip[id] = true
  end
  local places = call('ZRANGEBYLEX', WAITERS, '[' .. lock .. ':', '(' .. lock .. ';', 'LIMIT', '0',
    text(#skipped + 1))
  for _, place in ipairs(places) do
    local _, id, lane = split_place(place)
    if id and not skip[id] then
      return id, lane
    end
  end
end

local replies = {}
for i = FIRST, #ARGV, STRIDE do
  local lock, id, token = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  for _, gone in ipairs(ids_of(ARGV[i + 3])) do
    leave(lock, gone)
  end
  local holders = holders_of(lock)
  local mine = holder_index(holders, id, token)
  if mine then
    table.remove(holders, mine)
  end
  local waiter, lane
  if #holders == 0 then
    waiter, lane = next_waiter(lock, ids_of(ARGV[i + 4]))
    if waiter then
      call('HSET', WAITING, lock, text(steady + KEEP_FOR_WAITER) .. ' ' .. waiter)
    else
      call('HDEL', WAITING, lock)
    end
  end
  if mine or #holders == 0 then
    write_holders(lock, holders)
  end
  replies[#replies + 1] = waiter or ''
  replies[#replies + 1] = lane or ''
end

local reply = commit()
for _, one in ipairs(replies) do
  reply[#reply + 1] = one
end
return reply
