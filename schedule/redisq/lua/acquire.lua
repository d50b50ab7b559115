-- acquire takes or renews locks in the order of the requests; who is refused joins the lock's queue, or keeps its place.
-- KEYS: META LOCKS WAITERS WAITING
-- ARGV: GENERATION OFFSET MODE
-- EACH: lock id lane token until
-- Mode is take, or adopt for attempts that run already: those take the lock though it is kept for a waiter, and join no
-- queue. Until the shard is open only they take any: a lock that looks free may be that of one which comes yet.
-- Reply: now, 0, seq; for each request: 1 acquired or 0, the end of the holder's lock or of the time it is kept
-- Uses: begin locks
call('HDEL', META, '') -- as settle does

local replies = {}
for i = FIRST, #ARGV, STRIDE do
  local lock, id, lane, token, ending = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4]) -- in wall time
  local till, holder, holder_token = holder_of(lock)
  local mine = till and holder == id and holder_token == token
  local refused
  if till and not mine then
    refused = wall(till)
  elseif not till then
    local kept_till, kept_id = kept_for(lock)
    if kept_till and kept_id ~= id and MODE == 'take' then
      refused = wall(kept_till)
    end
  end
  if state[6] and MODE == 'take' and not mine then
    refused = refused or now
  end
  if MODE == 'adopt' and ending <= now then
    refused = now -- that attempt's time is over
  end
  if refused then
    if MODE == 'take' then
      wait(lock, id, lane)
    end
    replies[#replies + 1] = 0
    replies[#replies + 1] = refused
  else
    ending = math.max(steadily(ending), mine and till or 0)
    call('HSET', LOCKS, lock, text(ending) .. ' ' .. id .. ' ' .. token)
    call('HDEL', WAITING, lock)
    leave(lock, id)
    replies[#replies + 1] = 1
    replies[#replies + 1] = wall(ending)
  end
end

local reply = commit()
for _, one in ipairs(replies) do
  reply[#reply + 1] = one
end
return reply
