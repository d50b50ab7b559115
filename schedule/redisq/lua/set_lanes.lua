-- lanes applies settings of lanes. It ignores a setting that is older than the lane's.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS LANES LEASES QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD
-- EACH: lane limit every pause version
-- Every is in ns; 0: no rate.
-- Reply: now, next, seq
-- Uses: begin records flow lanes breaker events hints
call('HDEL', META, '') -- a full server runs a script that begins with a deletion: it too must take a pause

-- set_rate changes the rate at once: the wait for the next token is never longer than the new rate's.
local function set_rate(n, every)
  local f = n.flow
  if every == (f and f.every or 0) then
    return
  end
  f = flow_of(n)
  local at, rest = token_clock + math.floor(every / NS), every % NS
  if f.every == 0 then
    f.at, f.rest = token_clock, 0 -- a lane without a rate has saved no tokens
  elseif f.at > at or f.at == at and f.rest > rest then
    f.at, f.rest = at, rest
  end
  f.every = every
end

local limits, everys, pauses, versions = column(2), column(3), column(4), column(5)
local names = column(1)
load(names)
for i, name in ipairs(names) do
  if tonumber(versions[i]) >= version_of(peek(name)) then
    local n, pause = touch(name), tonumber(pauses[i])
    if n.pause > now and pause <= now then
      n.pace = math.min(n.pace, START_CONCURRENCY) -- as after a pause that ends by its time
    end
    open_tail(n)
    n.limit, n.pause, n.version = tonumber(limits[i]), pause, tonumber(versions[i])
    set_rate(n, tonumber(everys[i]))
    n.listed = true -- it may be in BLOCKED for the pause that this setting ends
  end
end
place_lanes()
return announce(woken)
