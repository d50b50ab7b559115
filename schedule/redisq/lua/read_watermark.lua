-- watermark returns how far ahead the shard takes in items. It writes nothing.
-- KEYS: META
-- ARGV: GENERATION OFFSET
-- Reply: now, 0, 0, the watermark (2^53 - 1: none), up to where it is loaded, the token of the last move
-- Uses: begin watermark
return append_watermark({now, 0, 0})
