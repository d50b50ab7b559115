-- watermark reads and writes how far ahead the shard holds items. Needs begin.
--
-- META has watermark and loaded while there is one, and loader from the first time that it was moved. No field: the shard
-- holds whatever it is given, and is given everything.
local mark = call('HMGET', META, 'watermark', 'loaded', 'loader')
local loader = mark[3] or ''
local watermark, loaded = tonumber(mark[1]), tonumber(mark[2])
if not watermark then
  watermark, loaded = HUGE, HUGE
end
loaded = math.min(loaded or 0, watermark)

-- keep_watermark writes what has been changed.
local function keep_watermark()
  if loaded < HUGE then
    call('HSET', META, 'watermark', text(watermark), 'loaded', text(loaded), 'loader', loader)
  else
    call('HSET', META, 'loader', loader)
    call('HDEL', META, 'watermark', 'loaded')
  end
end

-- tell appends to the head of a reply what the watermark is.
local function tell(reply)
  reply[4], reply[5], reply[6] = watermark, loaded, loader
  return reply
end
