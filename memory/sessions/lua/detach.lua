-- MySQL knows more of this session than Redis: its state is not to be used until it has been reopened.
-- The context's own fields stay; window, ids and numbering are rebuilt.
-- KEYS  1 ctx   2 msgs   3 ids
-- RETURNS 1
local done = redis.pcall('HDEL', KEYS[1], 'server')
-- Of another type: nothing of it is a context, and one such key must not keep the others from being told.
if type(done) == 'table' and done.err then redis.call('DEL', KEYS[1]) end
redis.call('DEL', KEYS[2], KEYS[3])
return 1
