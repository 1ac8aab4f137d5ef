-- Compare and delete: nobody opens another holder's lock.
-- KEYS  1 lock
-- ARGV  1 the holder's token
-- RETURNS 1, or 0 when it was not this holder's any more
-- pcall: a key of another type is not the holder's either.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
