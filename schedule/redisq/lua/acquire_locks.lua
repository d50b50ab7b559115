-- acquire takes or renews locks, in the order of the elements. A refused item joins the lock's queue, or
-- keeps its place in it.
-- KEYS: META LOCKS WAITERS WAITING
-- ARGV: GENERATION OFFSET MODE
-- EACH: lock id lane token until
-- MODE is take, or adopt for running attempts. In the mode adopt, an attempt takes the lock even if it is
-- kept for a waiter. If another attempt has the lock, it becomes the last next holder, of at most
-- MAX_NEXT_HOLDERS. It joins no queue. Until the shard is open, only adopt takes locks: a lock that looks
-- free may belong to an attempt that is not adopted yet.
-- Reply: now, 0, seq; for each element: 1 acquired or 0, the end of the holder's time or of the time for
-- which the lock is kept for a waiter
-- Uses: begin locks
call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua

-- add_holder makes an attempt the last holder. If there are too many, the last one stands for all of them
-- until the latest of their ends. It cannot release: its id is 0 and its token -.
local function add_holder(holders, id, token, ending)
  local last = holders[#holders]
  if #holders <= MAX_NEXT_HOLDERS then
    holders[#holders + 1] = { till = ending, id = id, token = token }
  else
    holders[#holders] = { till = math.max(last.till, ending), id = '0', token = '-' }
  end
end

local replies = {}
for i = FIRST, #ARGV, STRIDE do
  local lock, id, lane, token = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local ending = tonumber(ARGV[i + 4]) -- wall time
  local holders = holders_of(lock)
  local mine = holder_index(holders, id, token)
  local refused
  if MODE == 'adopt' then
    if ending <= now then
      refused = now -- its time is over
    end
  elseif #holders > 0 then
    if mine ~= 1 then
      refused = wall(holders[1].till)
    end
  else
    local kept_till, kept_id = kept_for(lock)
    if kept_till and kept_id ~= id then
      refused = wall(kept_till)
    elseif state[6] then
      refused = now
    end
  end
  if refused then
    if MODE == 'take' then
      wait(lock, id, lane)
    end
    replies[#replies + 1] = 0
    replies[#replies + 1] = refused
  else
    ending = steadily(ending)
    if mine then
      ending = math.max(ending, holders[mine].till)
      holders[mine].till = ending
    else
      add_holder(holders, id, token, ending)
    end
    write_holders(lock, holders)
    call('HDEL', WAITING, lock)
    leave(lock, id)
    replies[#replies + 1] = mine and mine > 1 and 0 or 1
    replies[#replies + 1] = wall(ending)
  end
end

local reply = commit()
for _, one in ipairs(replies) do
  reply[#reply + 1] = one
end
return reply
