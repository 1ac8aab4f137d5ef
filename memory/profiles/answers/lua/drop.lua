-- KEYS     values to delete
-- RETURNS  how many there were
local gone = 0
for index = 1, #KEYS do
    gone = gone + redis.call('DEL', KEYS[index])
end
return gone
