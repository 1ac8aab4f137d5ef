-- Takes a session's state out of use while its path is changed in MySQL. Whoever is making the state anew at this moment
-- finds another `gen` and starts again. The context's own fields stay.
-- KEYS  1 ctx   2 msgs   3 ids
-- ARGV  1 new gen   2 TTL of what is left, s
-- RETURNS the last number that this state gave, '' where there is none; false for a deleted session
local was = redis.call('HMGET', KEYS[1], 'deleted', 'seq')
if was[1] then return false end
if was[2] and not string.match(was[2], '^%d+$') then return redis.error_reply('DAMAGED seq is no number') end
redis.call('HSET', KEYS[1], 'gen', ARGV[1])
redis.call('HDEL', KEYS[1], 'server')
redis.call('DEL', KEYS[2], KEYS[3])
if redis.call('TTL', KEYS[1]) == -1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return was[2] or ''
