-- Gives a key back: nothing was done.
-- KEYS  1 guard:idem:{actor}:{key}
-- ARGV  1 agent   2 the request's token
-- RETURNS 1, or 0 when it was not this request's any more
local key, agent = KEYS[1], ARGV[1]
-- pcall: a key of another type is not the request's either.
if redis.pcall('HGET', key, agent .. ':token') ~= ARGV[2] then return 0 end
redis.call('HDEL', key, agent .. ':token', agent .. ':digest', agent .. ':about', agent .. ':until')
return 1
