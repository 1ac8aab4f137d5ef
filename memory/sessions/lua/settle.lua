-- Entries that are in MySQL (or in the dead letters) leave the stream; receipts of a committing append say so.
-- KEYS  1 sess:pending   2 ids (may be missing: one key is enough for the drain)
-- ARGV  1 group   2 how many stream ids   the stream ids   then entry id and receipt for each receipt to mark
-- RETURNS how many left the stream
local n = tonumber(ARGV[2])
local stream_ids = {}
for i = 3, 2 + n do stream_ids[#stream_ids + 1] = ARGV[i] end
local gone = 0
if n > 0 then
  redis.pcall('XACK', KEYS[1], ARGV[1], unpack(stream_ids))
  gone = redis.call('XDEL', KEYS[1], unpack(stream_ids))
end
for i = 3 + n, #ARGV, 2 do
  -- pcall: receipts of another type are made again by whoever reads them.
  if redis.pcall('HEXISTS', KEYS[2], ARGV[i]) == 1 then redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
end
return gone
