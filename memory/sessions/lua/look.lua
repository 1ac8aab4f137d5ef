-- What Redis holds of one session, as it is: nothing is renewed, reopened or refused, and no type is an error.
-- KEYS  1 ctx   2 msgs   3 ids   4 lock   5 fence
-- RETURNS {{type of each key}, {field, value, ... of ctx}, {items of the window, oldest first}, {id, receipt, ...},
--          ms that the lock has left (-1: for ever, -2: no lock), {server, next, last of fence; '' where not there}}
--         Of a key of another type nothing is told but the type.
local call = redis.call
local types = {}
for i = 1, 5 do types[i] = call('TYPE', KEYS[i]).ok end
local ctx, window, ids, fence = {}, {}, {}, {'', '', ''}
if types[1] == 'hash' then ctx = call('HGETALL', KEYS[1]) end
if types[2] == 'list' then window = call('LRANGE', KEYS[2], 0, -1) end
if types[3] == 'hash' then ids = call('HGETALL', KEYS[3]) end
if types[5] == 'hash' then
  fence = call('HMGET', KEYS[5], 'server', 'next', 'last')
  for i = 1, 3 do fence[i] = fence[i] or '' end
end
return {types, ctx, window, ids, call('PTTL', KEYS[4]), fence}
