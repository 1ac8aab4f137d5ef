-- Puts one id on the blacklist; what stands there longer stays longer.
-- KEYS    1 guard:token:{id}
-- ARGV    1 seconds to live
-- RETURNS 1
local key, ttl = KEYS[1], tonumber(ARGV[1])
local left = redis.call('PTTL', key)
if left < ttl * 1000 then
  -- not there (-2), without a TTL (-1, repaired), or for less long
  redis.call('SET', key, '1', 'EX', ttl)
end
return 1
