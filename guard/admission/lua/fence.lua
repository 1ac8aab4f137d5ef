-- Gives Redis the fencing numbers of a session that MySQL has leased to it.
-- KEYS  1 fence   2 numbers leased
-- ARGV  1 run id of this server   2 run id of the server that asked   3 mark that it gave   4 first   5 last   6 TTL, s
-- RETURNS 1 when they are in force, 0 when somebody else has brought some, or at another server: try again
if ARGV[1] ~= ARGV[2] or redis.call('HGET', KEYS[2], 'asked') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[2], 'server', ARGV[1], 'first', ARGV[4], 'last', ARGV[5])
redis.call('HDEL', KEYS[2], 'asked', 'given')
redis.call('EXPIRE', KEYS[2], ARGV[6])
redis.call('SET', KEYS[1], string.format('%.0f', tonumber(ARGV[4]) - 1), 'EX', ARGV[6])
return 1
