-- reset empties the shard, gives it a generation and closes it for claims. The clock and the sequence number
-- continue.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS HOLDS LANES LEASES
-- KEYS: CLAIMS OWNERS SEEN LOCKS WAITERS WAITING QUARANTINE
-- ARGV: GENERATION
-- Reply: seq
local old = redis.call('HMGET', META, 'clock', 'seq')
redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', META, 'generation', GENERATION, 'closed', 1, 'clock', old[1] or 0, 'seq', old[2] or 0)
return {redis.call('HINCRBY', META, 'seq', 1)}
