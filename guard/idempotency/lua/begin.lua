-- Takes a key for a request, or tells what became of the request that took it before.
-- KEYS  1 guard:idem:{actor}:{key}
-- ARGV  1 agent   2 random token   3 digest of the request   4 lease, ms   5 whom it is about, or ''
--       6 how long an answer is kept, ms
-- RETURNS {'RUN'}                            it is this request's, for the lease
--         {'DONE', status, headers, body}    body false where it was not kept
--         {'BUSY', ms}                       the same request is at work, its lease ends in so long
--         {'OTHER'}                          another request has the key
-- Fields are {agent}:name, for an actor's name may be one of several agents': token digest until about status headers
-- body. until: ms since 1970 by the server's clock, of the lease or, where there is a status, of the answer.
local call = redis.call
local key, agent, digest, lease, longest = KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if call('TYPE', key).ok ~= 'hash' then call('DEL', key) end
local left = call('PTTL', key)
if left == -1 then
  -- One without an end is none that was written here.
  call('PEXPIRE', key, longest)
  left = longest
end
local f = call('HMGET', key, agent .. ':digest', agent .. ':until', agent .. ':status')
local ends = tonumber(f[2])
if f[1] and ends and ends > now and ends <= now + longest then
  if f[1] ~= digest then return {'OTHER'} end
  if not f[3] then return {'BUSY', ends - now} end
  local kept = call('HMGET', key, agent .. ':headers', agent .. ':body')
  return {'DONE', f[3], kept[1], kept[2]}
end
call('HDEL', key, agent .. ':status', agent .. ':headers', agent .. ':body')
call('HSET', key, agent .. ':token', ARGV[2], agent .. ':digest', digest, agent .. ':about', ARGV[5],
  agent .. ':until', string.format('%.0f', now + lease))
if left < lease then call('PEXPIRE', key, lease) end
return {'RUN'}
