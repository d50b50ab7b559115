-- flow is what bounds a lane beside its concurrency: its rate and its breaker. Most lanes have none of it, n.flow is nil, and nothing
-- here is called for them. Needs begin.
--
-- f.every is how many ns lie between two attempts that begin; 0: no rate. The next token is there at f.at in ms, on the steady clock,
-- and f.rest in ns beyond that: a double does not hold both in one. A token that is taken moves it by f.every. It never lies more than
-- CATCH_UP in the past: what was not used for longer is lost. Tokens come in steps, so that a lane without any is looked at again when
-- several are there, and many such lanes at once.
-- f.fails attempts in a row got no answer, the first at f.since. f.probe, which is 0 while the breaker is closed, is when an item may
-- be leased as a probe: see breaker. f.open says whether BREAKERS has the lane.
local NS = 1000000 -- of a millisecond
local beat = steady - steady % TOKEN_STEP

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
