-- loaded records that every item due up to a time was given to the shard, unless another caller has moved the
-- watermark since.
-- KEYS: META
-- ARGV: GENERATION OFFSET TOKEN UNTIL
-- TOKEN is that of the caller's move. UNTIL is in ms; 2^53 - 1: everything.
-- Reply: now, 0, seq, the watermark, up to where it is loaded, the token of the last move
-- Uses: begin watermark
keep_clock()
local ending = math.min(tonumber(UNTIL), watermark)
if loader == TOKEN and ending > loaded then
  loaded = ending
  keep_watermark()
end
return append_watermark(commit())
