-- What Redis holds of a session before it is reopened; gives this Redis an epoch when it has none.
-- KEYS  1 ctx   2 sess:epoch
-- ARGV  1 run id of this server   2 a random id, the epoch if there is none   3 max age, us
-- RETURNS {epoch, run id, gen, seq, state}
--   gen, seq  '' where there are none; they identify this state for open.lua
--   state     gone, live, behind (another process or MySQL knows more), old (past its age), deleted
redis.call('SET', KEYS[2], ARGV[2], 'NX')
local epoch = redis.call('GET', KEYS[2])
local c = redis.call('HMGET', KEYS[1], 'gen', 'seq', 'server', 'opened_at', 'deleted')
local state = 'live'
if c[5] then state = 'deleted'
elseif not c[1] then state = 'gone'
else
  local time = redis.call('TIME')
  if time[1] * 1000000 + time[2] - tonumber(c[4]) > tonumber(ARGV[3]) then state = 'old'
  elseif c[3] ~= ARGV[1] then state = 'behind' end
end
return {epoch, ARGV[1], c[1] or '', c[2] or '', state}
