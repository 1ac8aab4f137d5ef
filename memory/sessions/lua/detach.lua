-- MySQL knows more of this session than Redis: its state is not to be used until it has been reopened.
-- The context's own fields stay; window, ids and numbering are rebuilt.
-- KEYS  1 ctx   2 msgs   3 ids
-- RETURNS 1
redis.call('HDEL', KEYS[1], 'server')
redis.call('DEL', KEYS[2], KEYS[3])
return 1
