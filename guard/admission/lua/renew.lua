-- Keeps an admission's slots, its reservation, and the lease of a run.
-- KEYS  1 budget of its month   2 running of the tenant   3 running of the user
--       for runs also  4 run   5 run of the session
-- ARGV  1 admission   2 life of the lease, ms   3 life of the reservation, ms   for runs also  4 run   5 fence
-- RETURNS {1, now ms} when it is kept; {0, now ms} when it was lost: its time is over, or another has it
local call, num = redis.call, tonumber
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local member = ARGV[1]
-- All that may fail (a key of another type) comes before what is written.
local open = call('HGET', KEYS[1], 'r:' .. ARGV[1])
for i = 2, 3 do
  local ends = num(call('ZSCORE', KEYS[i], member))
  if not ends or ends <= now then return {0, now} end
end
if ARGV[4] then
  local active = call('HMGET', KEYS[4], 'fence', 'admission')
  if active[1] ~= ARGV[5] or active[2] ~= member or call('GET', KEYS[5]) ~= ARGV[4] then return {0, now} end
end
for i = 2, 3 do
  call('ZADD', KEYS[i], 'XX', now + ARGV[2], member)
  if call('PTTL', KEYS[i]) < 43200000 then call('PEXPIRE', KEYS[i], 86400000) end
end
if ARGV[4] then
  call('PEXPIRE', KEYS[4], ARGV[2])
  call('PEXPIRE', KEYS[5], ARGV[2])
end
if open then
  local ends = (math.floor((now + ARGV[3]) / 1000) + 1) * 1000
  call('HSET', KEYS[1], 'r:' .. ARGV[1], (string.match(open, '^%d+') or '0') .. ' ' .. ends)
end
return {1, now}
