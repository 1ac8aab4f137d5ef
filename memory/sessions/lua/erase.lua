-- An erased session: all its keys go, and a mark that names nobody refuses late writers.
-- KEYS  1 ctx   2.. every other key of the session
-- ARGV  1 TTL of the mark, s
-- RETURNS how many keys were removed; a mark that stood there already is none
-- Whatever type somebody has made of a key: DEL takes them all.
local gone, kind = 0, redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and (kind ~= 'hash' or redis.call('HEXISTS', KEYS[1], 'deleted') == 0) then gone = 1 end
for i = 2, #KEYS do gone = gone + redis.call('DEL', KEYS[i]) end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'deleted', '1')
redis.call('EXPIRE', KEYS[1], ARGV[1])
return gone
