-- flow is a lane's rate and breaker. Most lanes have neither: n.flow is nil and nothing here is called. Needs
-- begin.
--
-- f.every is the time between two attempts that begin, in ns; 0: no rate. The next token comes at f.at in ms
-- on the steady clock, plus f.rest in ns: a double cannot hold both. A taken token moves that time by
-- f.every. The time is never more than CATCH_UP ago: older tokens are lost. Tokens come in steps of
-- TOKEN_STEP, so that a lane without tokens is visited again only when several are there, together with other
-- such lanes.
--
-- f.fails attempts in a row got no answer; the first ended at f.since. f.probe is when the breaker lets a
-- probe pass; 0: it is closed. f.open says whether BREAKERS has the lane.
local NS = 1000000 -- one millisecond
local token_clock = steady - steady % TOKEN_STEP

-- tokens returns the number of available tokens.
local function tokens(f)
  local past = token_clock - f.at
  local ns = past > CATCH_UP and CATCH_UP * NS or past * NS - f.rest
  return ns < 0 and 0 or math.floor(ns / f.every) + 1
end

-- token_at returns when the next token comes, if there is none now.
local function token_at(f)
  local at = f.rest > 0 and f.at + 1 or f.at
  return at + -at % TOKEN_STEP
end

-- spend takes count tokens; a negative count gives tokens back.
local function spend(f, count)
  local ns = f.rest
  if token_clock - f.at > CATCH_UP then
    f.at, ns = token_clock - CATCH_UP, 0
  end
  ns = ns + f.every % NS * count
  f.at, f.rest = f.at + math.floor(f.every / NS) * count + math.floor(ns / NS), ns % NS
  if token_clock - f.at > CATCH_UP then
    f.at, f.rest = token_clock - CATCH_UP, 0
  end
end
