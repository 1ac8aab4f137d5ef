-- Keeps what was read from MySQL, each only if no writer has invalidated it since the reader's miss; its lease ends.
--
-- KEYS     value 1, generation 1, value 2, generation 2, ...
-- ARGV     for each pair: the generation seen at the miss, the value ('' for none), its lifetime in milliseconds
--          (for none: how long that is remembered; 0 gives the lease back and keeps nothing), the value's checksum
-- RETURNS  how many were kept
-- A generation that has gone (invalidated, expired, lost) is not the one that was seen: nothing is kept.
-- The checksum lies beside the value, which other teams read: whoever else writes a value there has not written that.
local kept = 0
local argument = 1
for index = 1, #KEYS, 2 do
    local value_key, generation_key = KEYS[index], KEYS[index + 1]
    local seen, value, lifetime, sum = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2], ARGV[argument + 3]
    local held = redis.pcall('GET', generation_key)
    if type(held) == 'string' and string.match(held, '^(%S+) ') == seen then
        if value ~= '' then
            redis.call('SET', value_key, value, 'PX', lifetime)
            redis.call('SET', generation_key, seen .. ' 0 ' .. sum, 'PX', lifetime)
            kept = kept + 1
        elseif lifetime ~= '0' then
            redis.call('SET', generation_key, seen .. ' none', 'PX', lifetime)
            kept = kept + 1
        else
            redis.call('SET', generation_key, seen .. ' 0', 'KEEPTTL')
        end
    end
    argument = argument + 4
end
return kept
