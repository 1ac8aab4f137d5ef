-- Ends an admission: its reservation and its slots are free again; tells the budget what the ledger has, when settled.
-- KEYS  1 budget of its month   2 running of the tenant   3 running of the user   4 quota of its day
--       for runs also  5 run   6 run of the session
-- ARGV  1 run id of this server   2 admission   3 number of the ledger's newest row, or empty   4 its sum, units
--       5 1: give the day's call back, since no work began   6 1: the slots end, 0: they stay
--       for runs also  7 run   8 session's fence
-- RETURNS {reservation that was there 0|1, slots that were held 0|1}
local call, num = redis.call, tonumber
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local open, held = 0, 0
-- All that may fail (a key of another type) comes before what is written.
call('ZCARD', KEYS[2])
call('ZCARD', KEYS[3])
local used = num(call('HGET', KEYS[4], 'used') or 0) or 0
local fence, run
if ARGV[7] then fence, run = call('HGET', KEYS[5], 'fence'), call('GET', KEYS[6]) end

local b = call('HMGET', KEYS[1], 'server', 'spent', 'number', 'held', 'r:' .. ARGV[2])
if b[5] then
  open = 1
  local left = (num(b[4]) or 0) - (num(string.match(b[5], '^%d+')) or 0)
  call('HDEL', KEYS[1], 'r:' .. ARGV[2])
  call('HSET', KEYS[1], 'held', string.format('%.0f', math.max(left, 0)))
end
-- Numbers only grow: an answer that was overtaken by a later settlement changes nothing.
if ARGV[3] ~= '' and b[1] == ARGV[1] and b[2] and num(ARGV[3]) > (num(b[3]) or -1) then
  call('HSET', KEYS[1], 'spent', ARGV[4], 'number', ARGV[3])
end

if ARGV[6] == '1' then
  local member = ARGV[7] or ARGV[2]
  -- Of a run that somebody else has taken over meanwhile, the slots are that one's.
  local mine = not ARGV[7] or fence == ARGV[8] or not fence and run == ARGV[7]
  if mine then
    held = call('ZREM', KEYS[2], member)
    call('ZREM', KEYS[3], member)
    if ARGV[7] then
      held = 1
      call('DEL', KEYS[5])
      if run == ARGV[7] then call('DEL', KEYS[6]) end
    end
  end
  for i = 2, 3 do
    call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now)
    if call('PTTL', KEYS[i]) < 43200000 then call('PEXPIRE', KEYS[i], 86400000) end
  end
end
if ARGV[5] == '1' and (open == 1 or held == 1) and used > 0 then
  call('HINCRBY', KEYS[4], 'used', -1)
end
return {open, held}
