-- A deleted session: nothing of it stays but a mark that refuses late writers.
-- KEYS  1 ctx   2 msgs   3 ids
-- ARGV  1 TTL, s
-- RETURNS 1
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('HSET', KEYS[1], 'deleted', '1')
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
