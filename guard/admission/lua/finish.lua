-- Ends an admission: its reservation and its slots are free again; tells the budget what the ledger has, when settled.
-- KEYS  1 budget of its month   2 running of the tenant   3 running of the user   4 quota of its day
--       for runs also  5 run   6 run of the session
-- ARGV  1 admission   2 number of the ledger's newest row, or empty   3 its sum, units
--       4 empty, or no work began and the day's call is given back: `held` when a reservation or a slot is still there,
--       `bare` of an admission that took neither   5 1: the slots end, 0: they stay
--       for runs also  6 run
-- RETURNS {reservation that was there 0|1, slots that were held 0|1, the day's call was given back 0|1}
local call, num = redis.call, tonumber
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local open, held, back, member = 0, 0, 0, ARGV[1]
-- All that may fail (a key of another type) comes before what is written.
call('ZCARD', KEYS[2])
call('ZCARD', KEYS[3])
local used = num(call('HGET', KEYS[4], 'used') or 0) or 0
local active, run
if ARGV[6] then active, run = call('HMGET', KEYS[5], 'fence', 'admission'), call('GET', KEYS[6]) end

local b = call('HMGET', KEYS[1], 'number', 'spent', 'held', 'r:' .. member)
if b[4] then
  open = 1
  local left = (num(b[3]) or 0) - (num(string.match(b[4], '^%d+')) or 0)
  call('HDEL', KEYS[1], 'r:' .. member)
  call('HSET', KEYS[1], 'held', string.format('%.0f', left > 0 and left or 0))
end
-- Numbers only grow: an answer that was overtaken by a later settlement changes nothing. Where Redis was emptied it is
-- kept for whoever is reading the ledger at this moment (budget.lua), whose sum may be older.
local known = num(b[1]) or -1
if ARGV[2] ~= '' and (not b[2] or num(ARGV[2]) > known or not (known < 1e16)) then
  call('HSET', KEYS[1], 'spent', ARGV[3], 'number', ARGV[2])
  if call('PTTL', KEYS[1]) == -1 then call('EXPIRE', KEYS[1], 3456000) end
end

if ARGV[5] == '1' then
  if call('ZREM', KEYS[2], member) + call('ZREM', KEYS[3], member) > 0 then held = 1 end
  if ARGV[6] then
    -- A run that was taken up elsewhere meanwhile is that one's.
    if active[2] == member then
      held = 1
      call('DEL', KEYS[5])
      if run == ARGV[6] then call('DEL', KEYS[6]) end
    elseif not active[1] and not active[2] and run == ARGV[6] then
      held = 1
      call('DEL', KEYS[6])
    end
  end
  for i = 2, 3 do
    call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now)
    if call('PTTL', KEYS[i]) < 43200000 then call('PEXPIRE', KEYS[i], 86400000) end
  end
end
if used > 0 and (ARGV[4] == 'held' and (open == 1 or held == 1)
  or ARGV[4] == 'bare' and call('HSETNX', KEYS[4], 'u:' .. member, '1') == 1) then
  call('HINCRBY', KEYS[4], 'used', -1)
  back = 1
end
return {open, held, back}
