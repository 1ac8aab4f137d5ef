-- Keeps a value that was made under a lease, if that lease still stands; the lease ends with it.
--
-- KEYS[1]  value; KEYS[2] lease
-- ARGV[1]  the token of the lease; ARGV[2] the value, '' for none (the maker gives up)
-- ARGV[3]  lifetime of the value, milliseconds
-- RETURNS  1 when the value was kept or the lease given back, 0 when the lease was gone (invalidated, run out, lost)
local token, value, lifetime = ARGV[1], ARGV[2], ARGV[3]
-- (Of another type: an error of the GET, and so no token.)
if redis.pcall('GET', KEYS[2]) ~= token then
    return 0
end
redis.call('DEL', KEYS[2])
if value ~= '' then
    redis.call('SET', KEYS[1], value, 'PX', lifetime)
end
return 1
