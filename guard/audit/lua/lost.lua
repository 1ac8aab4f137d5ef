-- Counts observations that were lost, until the audit log itself tells of them.
-- KEYS  1 guard:audit:lost
-- ARGV  1 how long the count is kept, s   then pairs: event, how many
-- RETURNS total of the last days
-- Fields: untold:{event}, total, first_at, last_at (µs since 1970, by the server's clock).
local call, key, seconds = redis.call, KEYS[1], ARGV[1]
if call('TYPE', key).ok ~= 'hash' then call('DEL', key) end
local time = call('TIME')
local moment = time[1] .. string.format('%06d', tonumber(time[2]))
local function add(field, many)
  -- No number, or one at its end: somebody else's, and the count begins anew.
  if type(redis.pcall('HINCRBY', key, field, many)) == 'table' then call('HSET', key, field, many) end
end
for i = 2, #ARGV, 2 do
  add('untold:' .. ARGV[i], ARGV[i + 1])
  add('total', ARGV[i + 1])
end
call('HSETNX', key, 'first_at', moment)
call('HSET', key, 'last_at', moment)
call('EXPIRE', key, seconds)
return tonumber(call('HGET', key, 'total'))
