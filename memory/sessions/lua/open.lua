-- Opens a session in Redis from what MySQL and the undrained stream know, unless its state has moved on since.
-- KEYS  1 ctx   2 msgs   3 ids   4 sess:epoch
-- ARGV  1 run id of this server   2 run id and 3 epoch as observed   4 gen and 5 seq as observed
--       6 new gen   7 '1': keep intent, slots and the like; '2': a clean context in
--       place of an earlier one, which whoever reads it first is to be told   8 TTL, s
--       9 actor   10 tenant   11 seq   12 ceiling   13 first seq or ''   14 '1' when ids are all there are
--       15 how many turns the session's path has: a summary made before the latest is of another path, and goes
--       16 the entry that the next one follows, where it is not the window's last (a compaction entry stands first); ''
--       17 number of window items, the items, then entry id and receipt for each id
-- RETURNS 'OK', 'MOVED' (observe again), 'DELETED'
if ARGV[1] ~= ARGV[2] or redis.call('GET', KEYS[4]) ~= ARGV[3] then return 'MOVED' end
local was = redis.call('HMGET', KEYS[1], 'gen', 'seq', 'deleted')
if was[3] then return 'DELETED' end
if (was[1] or '') ~= ARGV[4] or (was[2] or '') ~= ARGV[5] then return 'MOVED' end
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', tonumber(time[2]))
local keep = ARGV[7] == '1'
if not keep then redis.call('DEL', KEYS[1]) end
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('HSET', KEYS[1], 'actor', ARGV[9], 'tenant', ARGV[10], 'seq', ARGV[11], 'ceiling', ARGV[12],
  'whole', ARGV[14], 'epoch', ARGV[3], 'gen', ARGV[6], 'updated_at', now)
if ARGV[7] == '2' then redis.call('HSET', KEYS[1], 'again', '1') end
redis.call('HSETNX', KEYS[1], 'opened_at', now)
redis.call('HSETNX', KEYS[1], 'version', '0')
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'first', ARGV[13]) else redis.call('HDEL', KEYS[1], 'first') end
if (redis.call('HGET', KEYS[1], 'turn') or '0') ~= ARGV[15] then
  redis.call('HDEL', KEYS[1], 'summary', 'folded')
  redis.call('HSET', KEYS[1], 'turn', ARGV[15])
end
if ARGV[16] ~= '' then redis.call('HSET', KEYS[1], 'head', ARGV[16]) else redis.call('HDEL', KEYS[1], 'head') end
local items = tonumber(ARGV[17])
for i = 18, 17 + items do redis.call('RPUSH', KEYS[2], ARGV[i]) end
for i = 18 + items, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
if #ARGV > 17 + items then redis.call('HSET', KEYS[1], 'given', '1') else redis.call('HDEL', KEYS[1], 'given') end
-- Last: until the server's name is there nobody uses the state, should a full server have refused a write above.
redis.call('HSET', KEYS[1], 'server', ARGV[1])
for i = 1, 3 do redis.call('EXPIRE', KEYS[i], ARGV[8]) end
return 'OK'
