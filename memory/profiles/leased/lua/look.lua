-- A cached value, or the lease to make it: one maker a key, whoever else asks meanwhile may wait.
--
-- KEYS[1]  value; KEYS[2] lease
-- ARGV[1]  a fresh random token: becomes the lease where nobody holds one
-- ARGV[2]  lifetime of a lease, milliseconds
-- RETURNS  {value} | {false, token} for the maker | {false, false} while somebody else is at it
--          | {false, '!'} where the place is held (hold.lua): whoever asks makes the value and keeps nothing
-- A hit writes nothing, but is refused where a write would be (GETEX): where no drop can delete, no value is to be had.
local token, lifetime = ARGV[1], ARGV[2]
local value = redis.call('GETEX', KEYS[1])
if value then
    return {value}
end
if redis.call('SET', KEYS[2], token, 'NX', 'PX', lifetime) then
    return {false, token}
end
local held = redis.call('GET', KEYS[2]) == '!'
-- No longer than a lease is long, whoever wrote it; a hold has an end of its own.
local left = redis.call('PTTL', KEYS[2])
if left < 0 or (left > tonumber(lifetime) and not held) then
    redis.call('PEXPIRE', KEYS[2], lifetime)
end
return {false, held and '!'}
