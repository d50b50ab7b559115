-- events tells when the shard next has something to do. Needs begin, DELAY, BLOCKED, HELD, LEASES.

-- What a claim's reply, or a later hint, announced as the next event. After a jump it was never meant for this clock.
local armed = not jumped and tonumber(state[3]) or HUGE

local function head(key)
  return tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]) or HUGE
end

-- upcoming returns the time of the next event, or HUGE. That an item becomes due counts so much earlier, if that is said.
local function upcoming(lead)
  local ending = math.min(head(HELD), head(LEASES))
  local due = head(DELAY)
  if lead and due < HUGE then
    due = math.max(due - lead, 1)
  end
  return math.min(due, head(BLOCKED), ending < HUGE and wall(ending) or HUGE)
end

local function arm(at)
  if at ~= armed then
    armed = at
    call('HSET', META, 'armed', text(at))
  end
end
