-- The holder keeps its lock.
-- KEYS  1 lock
-- ARGV  1 the holder's token   2 TTL, ms
-- RETURNS 1, or 0 when the lock is somebody else's or nobody's
-- pcall: a key of another type is not the holder's either.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
