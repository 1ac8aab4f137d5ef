-- Keeps the summary of what has left the window, unless the state is another by now or somebody has brought a summary.
-- KEYS  1 ctx
-- ARGV  1 gen and 2 folded as seen ('' for none)   3 folded: all before this number is in the summary   4 summary, JSON
-- RETURNS 1 when it was kept, else 0
local was = redis.call('HMGET', KEYS[1], 'gen', 'folded', 'server')
if not was[3] or was[1] ~= ARGV[1] or (was[2] or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'summary', ARGV[4], 'folded', ARGV[3])
return 1
