-- events tells when the shard next has something to do, and hints. Needs begin, DELAY, BLOCKED, LEASES, CHANNEL, SHARD.
local armed = tonumber(state[3]) or HUGE -- what a claim's reply, or a later hint, announced as the next event

local function head(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or HUGE
end

-- upcoming returns the time of the next event, or HUGE.
local function upcoming()
  return math.min(head(DELAY), head(BLOCKED), head(LEASES))
end

local function arm(at)
  if at ~= armed then
    armed = at
    call('HSET', META, 'armed', text(at))
  end
end

-- announce ends an operation that may bring an event nearer: where the claimers cannot know it yet, it hints, and
-- remembers that it did. Ready says that something may be claimed at once. It returns the head of the reply.
local function announce(ready)
  local next = upcoming()
  local at = ready and math.min(next, now) or next
  if at < armed and not state[6] then
    arm(at)
    call('PUBLISH', CHANNEL, SHARD)
  end
  local reply = commit()
  reply[2] = next < HUGE and next or 0
  return reply
end
