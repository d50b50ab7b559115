-- loaded notes that everything due up to a time was given to the shard, unless another caller has moved the watermark since.
-- KEYS: META
-- ARGV: GENERATION OFFSET TOKEN UNTIL
-- Until in ms, 2^53 - 1: everything.
-- Reply: now, 0, seq, the watermark, up to where it was loaded, the token of who moved it last
-- Uses: begin watermark
keep_clock()
local ending = math.min(tonumber(UNTIL), watermark)
if loader == TOKEN and ending > loaded then
  loaded = ending
  keep_watermark()
end
return tell(commit())
