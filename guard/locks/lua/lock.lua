-- Takes a lock, with a fencing number higher than any before.
-- KEYS  1 lock   2 fence
-- ARGV  1 run id of this server   2 random token   3 TTL of the lock, ms   4 TTL of fence, s
-- RETURNS {'OK', number}   {'HELD', ms until it ends at the latest}
--         {'FENCE', run id, mark}   no numbers left, or another process of the server may have given more: lease some
local left = redis.call('PTTL', KEYS[1])
if left ~= -2 and redis.call('TYPE', KEYS[1]).ok ~= 'string' then
  -- A key of another type is nobody's lock.
  redis.call('DEL', KEYS[1])
  left = -2
end
if left == -1 then
  -- One without an end is none that was taken here; whoever holds it keeps it for the time of one lock, not for ever.
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  left = tonumber(ARGV[3])
end
if left ~= -2 then return {'HELD', left} end
if redis.call('TYPE', KEYS[2]).ok ~= 'hash' then redis.call('DEL', KEYS[2]) end
local f = redis.call('HMGET', KEYS[2], 'server', 'next', 'last')
local number, last = tonumber(f[2]), tonumber(f[3])
if f[1] ~= ARGV[1] or not number or not last or number > last then
  -- The mark: of all who ask now the first brings numbers, and a late one does not put lower ones in their place.
  redis.call('HSETNX', KEYS[2], 'asked', ARGV[2])
  redis.call('EXPIRE', KEYS[2], ARGV[4])
  return {'FENCE', ARGV[1], redis.call('HGET', KEYS[2], 'asked')}
end
redis.call('HSET', KEYS[2], 'next', string.format('%.0f', number + 1))
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3])
return {'OK', f[2]}
