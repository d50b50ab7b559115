-- watermark reads and writes how far ahead the shard takes in items. Needs begin.
--
-- META has watermark and loaded while there is a watermark, and loader since the watermark was first moved.
-- Without the fields the shard takes in every item.
local mark = call('HMGET', META, 'watermark', 'loaded', 'loader')
local loader = mark[3] or ''
local watermark, loaded = tonumber(mark[1]), tonumber(mark[2])
if not watermark then
  watermark, loaded = HUGE, HUGE
end
loaded = math.min(loaded or 0, watermark)

-- keep_watermark writes the changed watermark.
local function keep_watermark()
  if loaded < HUGE then
    call('HSET', META, 'watermark', text(watermark), 'loaded', text(loaded), 'loader', loader)
  else
    call('HSET', META, 'loader', loader)
    call('HDEL', META, 'watermark', 'loaded')
  end
end

-- append_watermark appends the watermark to the head of a reply.
local function append_watermark(reply)
  reply[4], reply[5], reply[6] = watermark, loaded, loader
  return reply
end
