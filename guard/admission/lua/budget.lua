-- Gives Redis the sum over a month's ledger.
-- KEYS  1 budget
-- ARGV  1 run id of this server   2 number of the ledger's newest row   3 sum, units   4 ms at which the key ends
--       5 what the mark `stale` was when the sum was asked for, or empty   6 1: Redis had none although rows were there
-- RETURNS 1
local call, num = redis.call, tonumber
local b = call('HMGET', KEYS[1], 'number', 'stale', 'spent')
local known = num(b[1]) or -1
if not b[3] or num(ARGV[2]) >= known or not (known < 1e16) then
  call('HSET', KEYS[1], 'spent', ARGV[3], 'number', ARGV[2])
end
call('HSET', KEYS[1], 'server', ARGV[1])
call('HSETNX', KEYS[1], 'held', '0')
-- A value of more than 64 bytes makes Redis keep a table, in which a field is found at once; else each of admission's
-- looks would walk past all open reservations, up to 512.
call('HSETNX', KEYS[1], 'about', 'spent and held: millionths. r:{admission}: an open reservation, its amount and its end in ms')
if b[2] and b[2] == ARGV[5] then call('HDEL', KEYS[1], 'stale') end
if ARGV[6] == '1' then
  local time = call('TIME')
  call('HSET', KEYS[1], 'lost', string.format('%.0f', time[1] * 1000))
end
call('PEXPIREAT', KEYS[1], ARGV[4])
return 1
