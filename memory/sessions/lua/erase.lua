-- An erased session: all its keys go, and a mark that names nobody refuses late writers.
-- KEYS  1 ctx   2.. every other key of the session
-- ARGV  1 TTL of the mark, s
-- RETURNS how many keys were removed; a mark that stood there already is none
local gone = 0
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], 'deleted') == 0 then gone = 1 end
for i = 2, #KEYS do gone = gone + redis.call('DEL', KEYS[i]) end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'deleted', '1')
redis.call('EXPIRE', KEYS[1], ARGV[1])
return gone
