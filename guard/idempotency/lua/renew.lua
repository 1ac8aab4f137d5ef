-- The request that has a key keeps it while it works.
-- KEYS  1 guard:idem:{actor}:{key}
-- ARGV  1 agent   2 the request's token   3 lease, ms
-- RETURNS 1, or 0 when it has it no more
local call, key, agent = redis.call, KEYS[1], ARGV[1]
-- pcall: a key of another type is not the request's either.
if redis.pcall('HGET', key, agent .. ':token') ~= ARGV[2] then return 0 end
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
call('HSET', key, agent .. ':until', string.format('%.0f', now + tonumber(ARGV[3])))
if call('PTTL', key) < tonumber(ARGV[3]) then call('PEXPIRE', key, ARGV[3]) end
return 1
