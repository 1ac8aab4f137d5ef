-- Deletes values whose sources are about to change, and holds their places: nothing is kept there meanwhile.
--
-- KEYS     value 1, lease 1, value 2, lease 2, ...
-- ARGV[1]  lifetime of the hold, milliseconds: longer than the change takes; `drop` ends it earlier
-- RETURNS  how many values there were
local lifetime = ARGV[1]
local gone = 0
for index = 1, #KEYS, 2 do
    gone = gone + redis.call('DEL', KEYS[index])
    redis.call('SET', KEYS[index + 1], '!', 'PX', lifetime)
end
return gone
