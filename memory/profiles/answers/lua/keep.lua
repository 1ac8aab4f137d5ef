-- Keeps an answer that was made under a lease, while lease and epoch still stand; the lease ends with it.
--
-- KEYS[1]  epoch of the tenant's agent; KEYS[2] lease; KEYS[3] value (it may be of another scope than the lease)
-- ARGV[1]  token of the lease; ARGV[2] its epoch; ARGV[3] the value, '' to give the lease back
-- ARGV[4]  lifetime of the value, milliseconds
-- RETURNS  1 when it was kept or given back, 0 when lease or epoch have gone
-- (Of another type: an error of the GET, and so no token and no epoch.)
if redis.pcall('GET', KEYS[2]) ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[2])
if redis.pcall('GET', KEYS[1]) ~= ARGV[2] then
    return 0
end
if ARGV[3] ~= '' then
    redis.call('SET', KEYS[3], ARGV[3], 'PX', ARGV[4])
end
return 1
