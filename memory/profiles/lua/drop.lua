-- Deletes values and generations: what a save does after its commit.
--
-- KEYS     value 1, generation 1, value 2, generation 2, ...; none to learn whether the server takes writes
-- RETURNS  how many keys there were
-- A script, as read.lua is: what the server refuses one of them it refuses the other (Redis 6.2 lets scripts write
-- without the replicas that min-replicas-to-write asks for, and no command).
local gone = 0
for first = 1, #KEYS, 1000 do
    gone = gone + redis.call('DEL', unpack(KEYS, first, math.min(first + 999, #KEYS)))
end
return gone
