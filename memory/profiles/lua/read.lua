-- Cached values, and for each that is missing: whether to load it, to wait for who does, or that there is none.
--
-- KEYS     value 1, generation 1, value 2, generation 2, ...
-- ARGV[1]  a fresh random token: becomes the generation where there is none
-- ARGV[2]  lifetime of a generation, milliseconds
-- ARGV[3]  lifetime of a loader's lease, milliseconds
-- RETURNS  {value or false, generation or false, part, ...} in the order of KEYS; beside a value the whole text of the
--          generation key; part: 0 there is the value, 1 load it, 2 somebody else loads it, 3 MySQL had none a moment ago
-- A generation key holds '<token> <end of the lease, server's milliseconds>', '<token> none', or beside a value
-- '<token> 0 <its checksum>'. Its token stays while nobody invalidates, whoever holds the lease: each loader of one
-- generation may fill. A hit writes nothing, but is refused where a write would be: GETEX without an option is a GET
-- that the server counts among the writes. Where no save can delete, no value is to be had.
local token, lifetime, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local answer = {}
local now
for index = 1, #KEYS, 2 do
    local value = redis.call('GETEX', KEYS[index])
    local generation_key = KEYS[index + 1]
    local held = redis.call('GET', generation_key)
    local generation, part = held, 0
    if not value then
        if not now then
            local time = redis.call('TIME')
            now = time[1] * 1000 + math.floor(time[2] / 1000)
        end
        local seen, state
        -- Without an end, or with a later one than we give, it is somebody else's.
        local rest = held and redis.call('PTTL', generation_key)
        if held and rest >= 0 and rest <= tonumber(lifetime) then
            seen, state = string.match(held, '^(%S+) (%S+)$')
        end
        if not seen then
            generation, part = token, 1
            redis.call('SET', generation_key, string.format('%s %.0f', token, now + lease), 'PX', lifetime)
        elseif state == 'none' then
            generation, part = seen, 3
        else
            -- An end further off than a lease is long was written before the clock went back.
            local left = (tonumber(state) or 0) - now
            generation, part = seen, 2
            if not (left > 0 and left <= lease) then
                part = 1
                redis.call('SET', generation_key, string.format('%s %.0f', seen, now + lease), 'KEEPTTL')
            end
        end
    end
    answer[#answer + 1] = value
    answer[#answer + 1] = generation
    answer[#answer + 1] = part
end
return answer
