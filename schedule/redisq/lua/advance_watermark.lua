-- advance moves the watermark to a horizon from now, forward or back, unless another caller has moved it meanwhile.
-- KEYS: META
-- ARGV: GENERATION OFFSET HORIZON AFTER TOKEN
-- Horizon in ms, 0: no watermark; after is who moved it last, as the caller knows; token, who does now.
-- Reply: now, 0, seq, the watermark, up to where it was loaded, the token of who moved it last: the caller's if it did
-- Uses: begin watermark
keep_clock() -- the first write is one that a full server refuses
if loader == AFTER and loader ~= TOKEN then
  local horizon = tonumber(HORIZON)
  watermark = horizon > 0 and math.min(now + horizon, HUGE) or HUGE
  loaded, loader = math.min(loaded, watermark), TOKEN
  keep_watermark()
end
return tell(commit())
