-- events computes when the shard next has something to do. Needs begin, DELAY, BLOCKED, HELD, LEASES.

-- The next event that the last claim's reply, or a later hint, announced. The field is called armed. An
-- announcement from before a jump is void.
local announced = not jumped and tonumber(state[3]) or HUGE

local function head(key)
  return tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]) or HUGE
end

-- upcoming returns the time of the next event, or HUGE. The head of the delay set counts as much earlier as
-- early says, so that a claim with a lookahead finds several items.
local function upcoming(early)
  local ending = math.min(head(HELD), head(LEASES))
  local due = head(DELAY)
  if early and due < HUGE then
    due = math.max(due - early, 1)
  end
  return math.min(due, head(BLOCKED), ending < HUGE and wall(ending) or HUGE)
end

-- announce_event stores the event that a reply or a hint announces.
local function announce_event(at)
  if at ~= announced then
    announced = at
    call('HSET', META, 'armed', text(at))
  end
end
