-- hints tells claimers of events that they cannot know of yet. Needs begin, events, CHANNEL, SHARD.

-- announce ends an operation that may bring an event nearer: where the claimers cannot know it yet, it hints, and
-- remembers that it did. Ready says that something may be claimed at once. It returns the head of the reply.
local function announce(ready)
  local next = upcoming()
  local at = ready and math.min(next, now) or next
  if at < armed and not state[6] then
    arm(at)
    redis.pcall('PUBLISH', CHANNEL, SHARD) -- a user may be forbidden the channel: then the claimers' poll has to do
  end
  local reply = commit()
  reply[2] = next < HUGE and next or 0
  return reply
end
