-- Before a settlement is committed: the admission's reservation is at least what it costs, so that Redis counts it also
-- when its caller dies right after the commit.
-- KEYS  1 budget of its month
-- ARGV  1 ms after which the caller does not wait for the answer any more   2 admission   3 what it costs, units
--       4 life of a reservation, ms
-- RETURNS {1, now ms}; {0, now ms} when it came too late, or the caller does not know this server's time yet: nothing is
--         changed
local call, num = redis.call, tonumber
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > num(ARGV[1]) then return {0, now} end
local field, cost = 'r:' .. ARGV[2], num(ARGV[3])
local b = call('HMGET', KEYS[1], field, 'held', 'next')
local amount, ends = string.match(b[1] or '', '^(%d+) (%d+)$')
amount, ends = num(amount) or 0, num(ends) or 0
-- Half a minute is more than a commit takes.
if amount >= cost and (ends > now + 30000 or amount == 0) then return {1, now} end
local held, first = num(b[2] or 0) or 0, num(b[3] or 1e300) or 0
if not (held >= 0 and held < 1e16) then held, first = 0, 0 end
local more = math.max(cost, amount)
ends = math.max(ends, (math.floor((now + ARGV[4]) / 1000) + 1) * 1000)
call('HSET', KEYS[1], field, string.format('%.0f %.0f', more, ends), 'held', string.format('%.0f', held + more - amount))
if not (first <= ends) then call('HSET', KEYS[1], 'next', ends) end
if call('PTTL', KEYS[1]) == -1 then call('EXPIRE', KEYS[1], 3456000) end
return {1, now}
