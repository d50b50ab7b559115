-- begin is included first by every script but reset. It refuses a foreign generation, reads the clock, and
-- declares what all scripts share. Needs META, GENERATION, OFFSET.
--
-- There are two clocks. Due times and the ends of pauses are wall times: now. The ends of leases, locks and
-- holds are kept on the steady clock: steady. When the wall clock jumps, the steady clock does not, so these
-- keep their remaining time. The difference of the clocks is META's skew, which only a jump changes. All
-- arguments and replies are wall times.
local call = redis.call
local HUGE = 9007199254740991 -- 2^53 - 1: the latest time, and "no limit"

local state = call('HMGET', META, 'generation', 'clock', 'armed', 'virtual', 'limit', 'closed', 'skew',
  'lanes', 'watermark')
if state[1] ~= GENERATION then
  return redis.error_reply('LOST generation is ' .. (state[1] or 'missing') .. ', expected ' .. GENERATION)
end

-- The clock of this server decides what is due. If it goes back by at most STEP_BACK, as after a failover,
-- now stands still. It follows a larger step back. If no script wrote it for more than CLOCK_GAP, it may have
-- been set forward, so that counts as a jump too. OFFSET is 0 outside of tests.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + OFFSET
local last = tonumber(state[2]) or 0 -- the last written clock
local skew = tonumber(state[7]) or 0 -- the steady clock minus the wall clock
local jumped = now - last > CLOCK_GAP or now < last - STEP_BACK -- ADR 0006
if jumped and last > 0 then
  skew = skew + last - now
elseif now < last then
  now = last
end
local steady = now + skew

-- The watermark: an item that is due later is left out. Items that are due within MIN_HORIZON are always
-- taken in.
local latest_due = state[9] and math.max(tonumber(state[9]) or HUGE, now + MIN_HORIZON) or HUGE

local counts = {} -- counters of META that this script adds to

-- text prints a whole number that a double holds exactly; tostring() and .. would print 1e+15.
local function text(number)
  return string.format('%d', number)
end

-- steadily converts a wall time to the steady clock; wall converts back.
local function steadily(at)
  return math.min(math.max(at + skew, 0), HUGE)
end

local function wall(at)
  return math.min(math.max(at - skew, 0), HUGE)
end

-- keep_clock writes the clock, and the skew if the clock jumped.
local function keep_clock()
  if jumped then
    call('HSET', META, 'clock', text(now), 'skew', text(skew))
  else
    call('HSET', META, 'clock', text(now))
  end
end

-- variadic sends a command with a list of any length, at most 1000 arguments at a time: unpack has a limit.
-- An empty list sends nothing.
local function variadic(command, key, list)
  for first = 1, #list, 1000 do
    call(command, key, unpack(list, first, math.min(first + 999, #list)))
  end
end

-- fetch is variadic for commands whose reply has one element for each argument.
local function fetch(command, key, list)
  if #list <= 1000 then
    return #list == 0 and {} or call(command, key, unpack(list))
  end
  local all = {}
  for first = 1, #list, 1000 do
    for _, one in ipairs(call(command, key, unpack(list, first, math.min(first + 999, #list)))) do
      all[#all + 1] = one
    end
  end
  return all
end

-- column returns argument number n of every element.
local function column(n)
  local list = {}
  for i = FIRST + n - 1, #ARGV, STRIDE do
    list[#list + 1] = ARGV[i]
  end
  return list
end

-- commit writes the clock, the counters and the sequence number. An operation that changes items, lanes,
-- locks or the watermark ends with it. It returns the head of the reply, in which the next event is still 0.
local function commit()
  keep_clock()
  for name, n in pairs(counts) do
    call('HINCRBY', META, name, text(n))
  end
  return {now, 0, call('HINCRBY', META, 'seq', '1')}
end
