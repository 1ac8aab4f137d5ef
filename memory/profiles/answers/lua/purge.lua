-- Makes every answer of an agent unreachable at once, in all processes; the values die with their lifetime.
--
-- KEYS[1]  epoch of the tenant's agent
-- ARGV[1]  the new epoch; ARGV[2] its lifetime, milliseconds
-- RETURNS  1
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
