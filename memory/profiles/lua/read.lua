-- Cached values, and for each that is missing the generation under which it may be filled.
--
-- KEYS     value 1, generation 1, value 2, generation 2, ...
-- ARGV[1]  a fresh random token: becomes the generation where there is none
-- ARGV[2]  lifetime of a generation, milliseconds
-- RETURNS  {value or false, generation or false, ...} in the order of KEYS; a generation only beside a missing value
-- A hit writes nothing.
local token, lifetime = ARGV[1], ARGV[2]
local answer = {}
for index = 1, #KEYS, 2 do
    local value_key, generation_key = KEYS[index], KEYS[index + 1]
    local value = redis.call('GET', value_key)
    local generation = false
    if not value then
        generation = redis.call('GET', generation_key)
        if not generation then
            redis.call('SET', generation_key, token, 'PX', lifetime)
            generation = token
        elseif redis.call('PTTL', generation_key) < 0 then
            redis.call('PEXPIRE', generation_key, lifetime)
        end
    end
    answer[index] = value
    answer[index + 1] = generation
end
return answer
