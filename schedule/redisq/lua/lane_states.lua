-- states returns the states of lanes. It writes nothing.
-- KEYS: META READY UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS HOLDS LANES QUARANTINE
-- ARGV: GENERATION OFFSET
-- EACH: lane
-- Reply: now, 0, 0; for each lane: counted leases, concurrency and limit (0: no claim has brought the limit
-- yet), health, every (ns), ends of its pause and of its hold, time of its next token (0: now), attempts in a
-- row without an answer, when the first of them ended, breaker (0 closed, 1 open, 2 probing), time of the
-- next probe, ready fresh items, ready retries, begin of its hold, opening of its breaker. Times are in ms;
-- 0: none.
-- Uses: begin records flow lanes

-- count returns the number of the lane's ready items with kinds from `from` to before `past`.
local function count(lane, from, past)
  return call('ZLEXCOUNT', READY, '[' .. lane .. from, '(' .. lane .. past)
end

-- held_since returns when a lane's hold began; 0: a build that does not record it began the hold.
local function held_since(raw)
  local since, ends = string.match(raw or '', '^(%d+) (%d+)$')
  return since and tonumber(ends) > steady and wall(tonumber(since)) or 0
end

local names = column(1)
load(names)
local holds, opened = fetch('HMGET', HOLDS, names), fetch('ZMSCORE', BREAKERS, names)
local reply = {now, 0, 0}
for i, lane in ipairs(names) do
  local n = peek(lane)
  local f, limit = n.flow, limit_of(n)
  local fresh, retries = 0, count(lane, 'd', 's')
  if retries > 0 then
    fresh = count(lane, 'd', 'e') + count(lane, 'f', 'g')
    retries = retries - fresh
  end
  for _, one in ipairs({
    n.leases, limit < HUGE and concurrency(n) or 0, limit < HUGE and limit or 0, n.health, f and f.every or 0,
    n.pause > now and n.pause or 0, n.hold > steady and wall(n.hold) or 0,
    f and f.every > 0 and tokens(f) == 0 and wall(token_at(f)) or 0,
    f and f.fails or 0, f and f.since > 0 and wall(f.since) or 0,
    f and f.probe > 0 and (f.probe > steady and 1 or 2) or 0, f and f.probe > 0 and wall(f.probe) or 0,
    fresh, retries,
    n.hold > steady and held_since(holds[i]) or 0,
    f and f.probe > 0 and opened[i] and wall(tonumber(opened[i])) or 0,
  }) do
    reply[#reply + 1] = one
  end
end
return reply
