-- breaker learns from attempts that have ended. Needs begin, flow, lanes.
--
-- After BREAKER_ATTEMPTS in a row without an answer, over at least BREAKER_SPAN, a lane's breaker opens; further than that
-- they are not counted. It then lets one item pass at a time: its concurrency is 1, and nothing is
-- prefetched. What is not forced passes only when BREAKER_REST is over, and as much longer as lanes differ by. An
-- answer closes it, and the lane begins anew with a concurrency of 1; an attempt without one lets it rest
-- once more. Whatever ends without a word of the lane leaves it as it is, so that another probe may be made
-- at once.

-- flow_of returns a lane's flow, made if it has none.
local function flow_of(n)
  n.flow = n.flow or {every = 0, at = 0, rest = 0, fails = 0, since = 0, probe = 0, open = false}
  return n.flow
end

-- rest_of is how long a lane's breaker stays open: lanes that failed together need not be probed together, and those that follow each
-- other lie far apart, as by the golden ratio.
local function rest_of(lane)
  local number = tonumber(string.sub(string.sub(lane, 2), -2), 36) or 0 -- modulo PROBE_SPREAD
  return BREAKER_REST + number * PROBE_GOLDEN % PROBE_SPREAD
end

-- answered closes the breaker, and says whether it was open. unanswered counts, opens it, or keeps it open, and says whether it is.
local function answered(f)
  local open = f.probe > 0
  f.fails, f.since, f.probe = 0, 0, 0
  return open
end

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

-- learn adapts the lane to what an ended attempt said of it: 1 answered, 2 timed out, 3 got no answer. While its breaker is open its
-- concurrency is 1, and so it is when that closes.
local function learn(n, signal)
  if signal == '1' then
    n.health, n.pace = 1, n.flow and answered(n.flow) and 1 or math.min(concurrency(n) * 2, cap(n))
  elseif signal ~= '0' then
    if signal == '2' then
      n.health, n.pace = 2, math.max(math.floor(concurrency(n) / 2), 1)
    end
    if unanswered(n) then
      n.pace = 1
    end
  end
end
