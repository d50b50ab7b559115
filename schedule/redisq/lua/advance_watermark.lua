-- advance moves the watermark to a horizon from now, forward or back, unless another caller has moved it
-- since.
-- KEYS: META
-- ARGV: GENERATION OFFSET HORIZON AFTER TOKEN
-- HORIZON is in ms; 0: no watermark. AFTER is the token of the last move, as the caller knows it; TOKEN is
-- that of this move.
-- Reply: now, 0, seq, the watermark, up to where it is loaded, the token of the last move: TOKEN if it moved
-- Uses: begin watermark
keep_clock() -- the first write is one that a full server refuses, so that nothing is half done
if loader == AFTER and loader ~= TOKEN then
  local horizon = tonumber(HORIZON)
  watermark = horizon > 0 and math.min(now + horizon, HUGE) or HUGE
  loaded, loader = math.min(loaded, watermark), TOKEN
  keep_watermark()
end
return append_watermark(commit())
