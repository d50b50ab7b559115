-- hints sends hints about events that the claimers cannot know yet. Needs begin, events, CHANNEL, SHARD.

-- announce ends an operation that may bring an event nearer, and returns the head of its reply. If the next
-- event is earlier than the announced one, it sends a hint and stores the event, unless the shard is closed.
-- ready says that an item may be claimable now.
local function announce(ready)
  local next = upcoming()
  local at = ready and math.min(next, now) or next
  if at < announced and not state[6] then
    announce_event(at)
    redis.pcall('PUBLISH', CHANNEL, SHARD) -- pcall: an ACL may forbid the channel; then claimers poll
  end
  local reply = commit()
  reply[2] = next < HUGE and next or 0
  return reply
end
