-- flow is what bounds a lane beside its concurrency: its rate and its breaker. Most lanes have none of it, n.flow is nil, and nothing
-- here is called for them. Needs begin.
--
-- f.every is how many ns lie between two attempts that begin; 0: no rate. The next token is there at f.at in ms, on the steady clock,
-- and f.rest in ns beyond that: a double does not hold both in one. A token that is taken moves it by f.every. It never lies more than
-- CATCH_UP in the past: what was not used for longer is lost. Tokens come in steps, so that a lane without any is looked at again when
-- several are there, and many such lanes at once.
-- f.fails attempts in a row got no answer, the first at f.since; there it counts no further than ATTEMPTS. At so many, over at least
-- SPAN, the breaker opens: f.probe, which is 0 while it is closed, is then when an item may be leased as a probe. Whatever ends
-- without a word of the lane leaves it as it is, so that another probe may be made at once.
local TOKEN_STEP, CATCH_UP, NS = 10, 100, 1000000 -- ms, ms, ns
local ATTEMPTS, SPAN, REST = 20, 10000, 15000 -- the last two in ms
local SPREAD, GOLDEN = 1296, 803 -- ms
local beat = steady - steady % TOKEN_STEP

-- flow_of returns a lane's flow, made if it has none.
local function flow_of(n)
  n.flow = n.flow or {every = 0, at = 0, rest = 0, fails = 0, since = 0, probe = 0, open = false}
  return n.flow
end

-- tokens returns how many are there.
local function tokens(f)
  local past = beat - f.at
  local ns = past > CATCH_UP and CATCH_UP * NS or past * NS - f.rest
  return ns < 0 and 0 or math.floor(ns / f.every) + 1
end

-- token_at returns when there will be one again, where there is none.
local function token_at(f)
  local at = f.rest > 0 and f.at + 1 or f.at
  return at + -at % TOKEN_STEP
end

-- spend takes so many tokens; less than none: gives them back.
local function spend(f, count)
  local ns = f.rest
  if beat - f.at > CATCH_UP then
    f.at, ns = beat - CATCH_UP, 0
  end
  ns = ns + f.every % NS * count
  f.at, f.rest = f.at + math.floor(f.every / NS) * count + math.floor(ns / NS), ns % NS
  if beat - f.at > CATCH_UP then
    f.at, f.rest = beat - CATCH_UP, 0
  end
end

-- rest_of is how long a lane's breaker stays open: lanes that failed together need not be probed together, and those that follow each
-- other lie far apart, as by the golden ratio.
local function rest_of(lane)
  local number = tonumber(string.sub(string.sub(lane, 2), -2), 36) or 0 -- modulo SPREAD
  return REST + number * GOLDEN % SPREAD
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
  f.fails = math.min(f.fails + 1, ATTEMPTS)
  if f.probe > 0 or f.fails == ATTEMPTS and steady - f.since >= SPAN then
    f.probe = steady + rest_of(n.lane)
  end
  return f.probe > 0
end

-- set_rate is in force at once: nobody waits for longer than the new rate would have him wait.
local function set_rate(n, every)
  local f = n.flow
  if every == (f and f.every or 0) then
    return
  end
  f = flow_of(n)
  local at, rest = beat + math.floor(every / NS), every % NS
  if f.every == 0 then
    f.at, f.rest = beat, 0 -- it brings along nothing that it did not use before
  elseif f.at > at or f.at == at and f.rest > rest then
    f.at, f.rest = at, rest
  end
  f.every = every
end
