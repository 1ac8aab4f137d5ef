-- How often answers were asked for.
--
-- KEYS[1]  counts of lookups
-- RETURNS  {field, count, ...}; a field is "tenant:agent:result"
return redis.call('HGETALL', KEYS[1])
