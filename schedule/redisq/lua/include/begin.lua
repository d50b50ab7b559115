-- begin opens every script but reset and generation: it refuses a foreign generation, reads the clock, and declares
-- what all scripts share. Needs META, GENERATION, OFFSET.
local call = redis.call
local HUGE = 9007199254740991 -- 2^53 - 1: the latest time, and "no limit"

local state = call('HMGET', META, 'generation', 'clock', 'armed', 'virtual', 'limit', 'closed')
if state[1] ~= GENERATION then
  return redis.error_reply('LOST generation is ' .. (state[1] or 'missing') .. ', expected ' .. GENERATION)
end

-- One clock decides what is due: this server's, which never goes back, not even over a failover. OFFSET is 0 outside
-- of tests.
local time = call('TIME')
local now = math.max(time[1] * 1000 + math.floor(time[2] / 1000) + OFFSET, tonumber(state[2]) or 0)

local counts = {} -- counters of META that this script adds to

-- text prints whole numbers of any size that a double holds; tostring() and .. would print 1e+15.
local function text(number)
  return string.format('%.0f', number)
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
  call('HSET', META, 'clock', text(now))
  for name, n in pairs(counts) do
    call('HINCRBY', META, name, n)
  end
  return {now, 0, call('HINCRBY', META, 'seq', 1)}
end
