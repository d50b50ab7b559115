-- stats returns sizes; nothing is scanned. It writes the clock alone, so that time passes
-- though nothing else happens.
-- KEYS: META DELAY READY UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LEASES LOCKS WAITERS QUARANTINE
-- ARGV: GENERATION OFFSET
-- Reply: now, next, seq, delayed, ready, leased, runnable lanes, blocked lanes, open breakers, locks, waiters, quarantined, head's due
-- or 0, claimed, acked, rescheduled, diverted, buried, reaped, stale
-- Uses: begin events
call('HDEL', META, '')
keep_clock()

local function size(key)
  return call('ZCARD', key)
end

local next, first = upcoming(), head(DELAY)
local reply = {
  now, next < HUGE and next or 0, tonumber(call('HGET', META, 'seq')) or 0,
  size(DELAY), size(READY), size(LEASES), size(UNPROVEN) + size(ANSWERING) + size(TIMING_OUT), size(BLOCKED) + size(HELD),
  size(BREAKERS),   call('HLEN', LOCKS), size(WAITERS), call('HLEN', QUARANTINE), first < HUGE and first or 0,
}
for _, n in ipairs(call('HMGET', META, 'claimed', 'acked', 'rescheduled', 'diverted', 'buried', 'reaped', 'stale')) do
  reply[#reply + 1] = tonumber(n) or 0
end
return reply
