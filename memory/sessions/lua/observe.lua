-- What Redis holds of a session before it is reopened; gives this Redis an epoch when it has none.
-- Where nothing is there a mark is left (`gen` alone, which nobody takes for a session): whoever reopens must find it
-- again. Without it a state that came, numbered messages and went meanwhile would look like nothing having happened.
-- KEYS  1 ctx   2 sess:epoch
-- ARGV  1 run id of this server   2 a random id: the epoch if there is none, the mark if there is nothing
--       3 max age, us   4 TTL of the mark, s
-- RETURNS {epoch, run id, gen, seq, state}
--   gen, seq  identify this state for open.lua; seq is '' where there is none
--   state     gone, live, behind (another process or MySQL knows more), old (past its age), deleted
redis.call('SET', KEYS[2], ARGV[2], 'NX')
local epoch = redis.call('GET', KEYS[2])
local c = redis.call('HMGET', KEYS[1], 'gen', 'seq', 'server', 'opened_at', 'deleted', 'actor')
if c[2] and not string.match(c[2], '^%d+$') then return redis.error_reply('DAMAGED seq is no number') end
local state = 'live'
if c[5] then state = 'deleted'
elseif not c[6] then
  state = 'gone'
  if not c[1] then
    c[1] = ARGV[2]
    redis.call('HSET', KEYS[1], 'gen', c[1])
    redis.call('EXPIRE', KEYS[1], ARGV[4])
  end
else
  local time = redis.call('TIME')
  if time[1] * 1000000 + time[2] - tonumber(c[4]) > tonumber(ARGV[3]) then state = 'old'
  elseif c[3] ~= ARGV[1] then state = 'behind' end
end
return {epoch, ARGV[1], c[1] or '', c[2] or '', state}
