-- Gives Redis the range of numbers that MySQL has leased to it.
-- KEYS  1 ctx
-- ARGV  1 run id of this server   2 first number   3 last number
-- RETURNS 1 when the range is in force, 0 when the session must be reopened
-- A range that follows or contains the present one extends it; another one means that numbers were used elsewhere: go on there.
local c = redis.call('HMGET', KEYS[1], 'server', 'seq', 'ceiling')
if c[1] ~= ARGV[1] then return 0 end
local ceiling, from, to = tonumber(c[3]), tonumber(ARGV[2]), tonumber(ARGV[3])
if ceiling >= to then return 1 end
if ceiling + 1 < from then redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', from - 1)) end
redis.call('HSET', KEYS[1], 'ceiling', ARGV[3])
return 1
