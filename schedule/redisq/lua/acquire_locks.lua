-- acquire takes or renews locks in the order of the requests; who is refused joins the lock's queue, or keeps its place.
-- KEYS: META LOCKS WAITERS WAITING
-- ARGV: GENERATION OFFSET MODE
-- EACH: lock id lane token until
-- Mode is take, or adopt for attempts that run already: those take the lock though it is kept for a waiter, inherit it where
-- another has it, and join no queue. MAX_NEXT_HOLDERS of them are told apart. Until the shard is open only they take any: a
-- lock that looks free may be that of one which comes yet.
-- Reply: now, 0, seq; for each request: 1 acquired or 0, the end of the holder's lock or of the time it is kept
-- Uses: begin locks
call('HDEL', META, '') -- as settle does

-- bequeath makes an attempt the last heir of the holders. Where there are too many, the last is nobody, until the end of all.
local function bequeath(holders, id, token, ending)
  local last = holders[#holders]
  if #holders <= MAX_NEXT_HOLDERS then
    holders[#holders + 1] = { till = ending, id = id, token = token }
  else
    holders[#holders] = { till = math.max(last.till, ending), id = '0', token = '-' }
  end
end

local replies = {}
for i = FIRST, #ARGV, STRIDE do
  local lock, id, lane, token, ending = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4]) -- in wall time
  local holders = holders_of(lock)
  local mine = place_of(holders, id, token)
  local refused
  if MODE == 'adopt' then
    if ending <= now then
      refused = now -- that attempt's time is over
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
      bequeath(holders, id, token, ending)
    end
    hold(lock, holders)
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
