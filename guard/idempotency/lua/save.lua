-- Keeps the answer of work that was done.
-- KEYS  1 guard:idem:{actor}:{key}
-- ARGV  1 agent   2 the request's token   3 how long it is kept, ms   4 status   5 headers   then the body, if it is kept
-- RETURNS 1, or 0 when the key is not this request's any more: then nothing is kept, not even where nobody has it (an
--         erasure may have removed it)
local call, key, agent = redis.call, KEYS[1], ARGV[1]
-- pcall: a key of another type is not the request's either.
if redis.pcall('HGET', key, agent .. ':token') ~= ARGV[2] then return 0 end
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
call('HDEL', key, agent .. ':token')
call('HSET', key, agent .. ':status', ARGV[4], agent .. ':headers', ARGV[5],
  agent .. ':until', string.format('%.0f', now + tonumber(ARGV[3])))
if ARGV[6] then call('HSET', key, agent .. ':body', ARGV[6]) end
call('PEXPIRE', key, ARGV[3])
return 1
