-- stats returns sizes without a scan. It writes only the clock, so that time passes although no other script
-- runs: a clock that was not written for CLOCK_GAP counts as a jump.
-- KEYS: META DELAY READY UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LEASES LOCKS WAITERS QUARANTINE
-- ARGV: GENERATION OFFSET
-- Reply: now, next, seq, delayed, ready, leased, runnable lanes, blocked lanes, open breakers, locks,
-- waiters, quarantined, due time of the head (0: none), claimed, acked, rescheduled, diverted, buried,
-- reaped, stale
-- Uses: begin events
call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua
keep_clock()

local function size(key)
  return call('ZCARD', key)
end

local next, first = upcoming(), head(DELAY)
local reply = {
  now, next < HUGE and next or 0, tonumber(call('HGET', META, 'seq')) or 0,
  size(DELAY), size(READY), size(LEASES), size(UNPROVEN) + size(ANSWERING) + size(TIMING_OUT),
  size(BLOCKED) + size(HELD), size(BREAKERS), call('HLEN', LOCKS), size(WAITERS), call('HLEN', QUARANTINE),
  first < HUGE and first or 0,
}
local counters = {'claimed', 'acked', 'rescheduled', 'diverted', 'buried', 'reaped', 'stale'}
for _, n in ipairs(call('HMGET', META, unpack(counters))) do
  reply[#reply + 1] = tonumber(n) or 0
end
return reply
