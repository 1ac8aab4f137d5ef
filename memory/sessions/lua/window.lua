-- May the window be read, and a new lease of life for the session's keys. The messages are asked for along with it.
-- KEYS  1 ctx   2 msgs   3 ids
-- ARGV  1 run id of this server   2 actor   3 TTL, s   4 max age, us
-- RETURNS {'OK', number of the session's first message or '', last number}   {'MISS'}   {'OWNER'}   {'DELETED'}
--@include admit
local c, code = admit(KEYS[1], ARGV[1], ARGV[2], ARGV[4])
if not c then return code end
renew(KEYS, ARGV[3])
return {'OK', c.first or '', string.format('%.0f', c.seq)}
