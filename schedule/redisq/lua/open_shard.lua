-- open allows claims after a rebuild.
-- KEYS: META DELAY BLOCKED HELD LEASES
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- Reply: now, next, seq
-- Uses: begin events hints
call('HDEL', META, 'closed', 'armed')
state[6] = false
announced = HUGE
return announce(true)
