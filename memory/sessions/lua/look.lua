-- What Redis holds of one session, as it is: nothing is renewed, reopened or refused.
-- KEYS  1 ctx   2 msgs   3 ids
-- RETURNS {{server, seq, ceiling, origin, deleted, actor}, {entry id, seq, ... of the window, oldest first}, {id, receipt, ...}}
--         A field that is not there is ''; a window item that cannot be read has '' for both.
local ctx = redis.call('HMGET', KEYS[1], 'server', 'seq', 'ceiling', 'origin', 'deleted', 'actor')
for i = 1, 6 do ctx[i] = ctx[i] or '' end
local window = {}
for _, item in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  window[#window + 1] = string.match(item, '^{"entry_id":"([%w_.-]+)"') or ''
  window[#window + 1] = string.match(string.sub(item, -80), ',"seq":(%d+),"at":%d+}$') or ''
end
return {ctx, window, redis.call('HGETALL', KEYS[3])}
