-- breaker adapts a lane to ended attempts. Needs begin, flow, lanes.
--
-- A breaker opens after BREAKER_ATTEMPTS attempts in a row, over at least BREAKER_SPAN, without an answer.
-- Then the lane's concurrency is 1, and nothing is prefetched. Items that are not forced wait until the rest
-- is over: rest_of the lane. An answer closes the breaker, and the concurrency restarts at 1. An attempt
-- without an answer restarts the rest. A lease that ends without a signal changes nothing, so that another
-- probe may follow at once.

-- flow_of returns a lane's flow. It makes one if necessary.
local function flow_of(n)
  n.flow = n.flow or {every = 0, at = 0, rest = 0, fails = 0, since = 0, probe = 0, open = false}
  return n.flow
end

-- rest_of returns how long a lane's breaker rests. Lanes that failed together, or whose numbers follow each
-- other, get different times (schedule.BreakerRestOf). The last two digits of the lane are its number modulo
-- PROBE_SPREAD.
local function rest_of(lane)
  local number = tonumber(string.sub(string.sub(lane, 2), -2), 36) or 0
  return BREAKER_REST + number * PROBE_GOLDEN % PROBE_SPREAD
end

-- answered closes the breaker, and returns whether it was open.
local function answered(f)
  local open = f.probe > 0
  f.fails, f.since, f.probe = 0, 0, 0
  return open
end

-- unanswered counts an attempt without an answer. It opens the breaker or restarts its rest if necessary, and
-- returns whether the breaker is open.
local function unanswered(n)
  local f = flow_of(n)
  if f.fails == 0 then
    f.since = steady
  end
  f.fails = math.min(f.fails + 1, BREAKER_ATTEMPTS)
  if f.probe > 0 or f.fails == BREAKER_ATTEMPTS and steady - f.since >= BREAKER_SPAN then
    f.probe = steady + rest_of(n.lane)
  end
  return f.probe > 0
end

-- learn adapts the lane to the signal of an ended attempt: 1 answered, 2 timed out, 3 no answer. While the
-- breaker is open, and when it closes, the concurrency is 1.
local function learn(n, signal)
  if signal == '1' then
    n.health, n.pace = 1, n.flow and answered(n.flow) and 1 or math.min(concurrency(n) * 2, limit_of(n))
  elseif signal ~= '0' then
    if signal == '2' then
      n.health, n.pace = 2, math.max(math.floor(concurrency(n) / 2), 1)
    end
    if unanswered(n) then
      n.pace = 1
    end
  end
end
