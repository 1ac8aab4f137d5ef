-- Takes a session's lock, with a fencing number higher than any before.
-- KEYS  1 lock   2 fence
-- ARGV  1 run id of this server   2 random token   3 TTL of the lock, ms   4 TTL of fence, s
-- RETURNS {'OK', number}   {'HELD', ms until it ends at the latest}
--         {'FENCE', run id, mark}   no numbers left, or another process of the server may have given more: lease some
local left = redis.call('PTTL', KEYS[1])
-- One without an end is none of ours, and would be held for ever; so would be a key of another type.
if left == -1 or left > 0 and redis.call('TYPE', KEYS[1]).ok ~= 'string' then
  redis.call('DEL', KEYS[1])
  left = -2
end
if left ~= -2 then return {'HELD', left} end
local f = redis.call('HMGET', KEYS[2], 'server', 'next', 'last')
if f[1] ~= ARGV[1] or tonumber(f[2]) > tonumber(f[3]) then
  -- The mark: of all who ask now the first brings numbers, and a late one does not put lower ones in their place.
  redis.call('HSETNX', KEYS[2], 'asked', ARGV[2])
  redis.call('EXPIRE', KEYS[2], ARGV[4])
  return {'FENCE', ARGV[1], redis.call('HGET', KEYS[2], 'asked')}
end
redis.call('HSET', KEYS[2], 'next', string.format('%.0f', tonumber(f[2]) + 1))
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3])
return {'OK', f[2]}
