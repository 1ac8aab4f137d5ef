-- Keeps values that were read from MySQL, each only if no writer has invalidated it since the reader's miss.
--
-- KEYS     value 1, generation 1, value 2, generation 2, ...
-- ARGV     for each pair: the generation seen at the miss, the value, its lifetime in milliseconds
-- RETURNS  how many were kept
-- A generation that has gone (invalidated, expired, lost) is not the one that was seen: nothing is kept.
local kept = 0
local argument = 1
for index = 1, #KEYS, 2 do
    local value_key, generation_key = KEYS[index], KEYS[index + 1]
    local seen, value, lifetime = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2]
    if redis.call('GET', generation_key) == seen then
        redis.call('SET', value_key, value, 'PX', lifetime)
        kept = kept + 1
    end
    argument = argument + 3
end
return kept
