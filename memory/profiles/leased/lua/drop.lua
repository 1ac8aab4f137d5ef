-- Deletes values together with their leases: who is making one of them now can not keep it.
--
-- KEYS     value 1, lease 1, value 2, lease 2, ...
-- RETURNS  how many keys there were
local gone = 0
for index = 1, #KEYS do
    gone = gone + redis.call('DEL', KEYS[index])
end
return gone
