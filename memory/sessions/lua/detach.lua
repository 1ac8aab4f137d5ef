-- MySQL knows more of this session than Redis: its state is not to be used until it has been reopened.
-- The context's own fields stay; window, ids and numbering are rebuilt.
-- Whoever is making the state anew at this moment has not seen what MySQL knows: they find another `gen` and start again.
-- KEYS  1 ctx   2 msgs   3 ids
-- ARGV  1 new gen
-- RETURNS 1
local known = redis.pcall('HEXISTS', KEYS[1], 'gen')
if type(known) == 'table' and known.err then
  -- Of another type: nothing of it is a context, and one such key must not keep the others from being told.
  redis.call('DEL', KEYS[1])
else
  if known == 1 then redis.call('HSET', KEYS[1], 'gen', ARGV[1]) end
  redis.call('HDEL', KEYS[1], 'server')
end
redis.call('DEL', KEYS[2], KEYS[3])
return 1
