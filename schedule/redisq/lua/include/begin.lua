-- begin opens every script but reset and generation: it refuses a foreign generation, reads the clock, and declares
-- what all scripts share. Needs META, GENERATION, OFFSET.
--
-- There are two clocks. What is due, and until when a lane is paused, is told in wall time, now. How much is left of a
-- lease, a lock or a hold is counted on the steady clock, which stands still where the wall clock jumps: what is left
-- stays left. The two differ by META's skew, which only a jump changes. Callers hear and say wall time.
local call = redis.call
local HUGE = 9007199254740991 -- 2^53 - 1: the latest time, and "no limit"

local state = call('HMGET', META, 'generation', 'clock', 'armed', 'virtual', 'limit', 'closed', 'skew', 'lanes', 'watermark')
if state[1] ~= GENERATION then
  return redis.error_reply('LOST generation is ' .. (state[1] or 'missing') .. ', expected ' .. GENERATION)
end

-- One clock decides what is due: this server's. Where it goes back a little, as over a failover, it stands still; where it
-- goes back further, or was not read for so long that it may have been put forward, it is followed. OFFSET is 0 outside
-- of tests.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + OFFSET
local last = tonumber(state[2]) or 0 -- what the clock was when it was last written
local skew = tonumber(state[7]) or 0 -- the steady clock less the wall clock
local jumped = now - last > CLOCK_GAP or now < last - STEP_BACK -- ADR 0006
if jumped and last > 0 then
  skew = skew + last - now
elseif now < last then
  now = last
end
local steady = now + skew

-- What is due later than that is left out: it is beyond the shard's watermark, if there is one, and not due soon either.
local farthest = state[9] and math.max(tonumber(state[9]) or HUGE, now + MIN_HORIZON) or HUGE

local counts = {} -- counters of META that this script adds to

-- text prints whole numbers of any size that a double holds exactly; tostring() and .. would print 1e+15.
local function text(number)
  return string.format('%d', number)
end

-- steadily and wall turn a time of one clock into one of the other.
local function steadily(at)
  return math.min(math.max(at + skew, 0), HUGE)
end

local function wall(at)
  return math.min(math.max(at - skew, 0), HUGE)
end

-- keep_clock writes what the clock is.
local function keep_clock()
  if jumped then
    call('HSET', META, 'clock', text(now), 'skew', text(skew))
  else
    call('HSET', META, 'clock', text(now))
  end
end

-- variadic sends a command with a list of arguments of any length, at most 1000 at a time: unpack has a limit.
local function variadic(command, key, list)
  for first = 1, #list, 1000 do
    call(command, key, unpack(list, first, math.min(first + 999, #list)))
  end
end

-- fetch is variadic for commands that answer one element for each argument.
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

-- column returns argument number n of each element.
local function column(n)
  local list = {}
  for i = FIRST + n - 1, #ARGV, STRIDE do
    list[#list + 1] = ARGV[i]
  end
  return list
end

-- commit writes what every write writes, and returns the head of the reply without the next event.
local function commit()
  keep_clock()
  for name, n in pairs(counts) do
    call('HINCRBY', META, name, text(n))
  end
  return {now, 0, call('HINCRBY', META, 'seq', '1')}
end
