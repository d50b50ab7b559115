-- watermark says how far ahead the shard holds items. It writes nothing.
-- KEYS: META
-- ARGV: GENERATION OFFSET
-- Reply: now, 0, 0, the watermark, up to where it was loaded (2^53 - 1: no limit), the token of who moved it last
-- Uses: begin watermark
return tell({now, 0, 0})
