-- An answer of the present epoch, or the lease to make it: one maker a question, whoever else asks may wait.
--
-- KEYS[1]  epoch of the tenant's agent; KEYS[2] counts of lookups; KEYS[3] lease of the scope that is asked for
-- KEYS[4]  value in that scope; KEYS[5] value in the public scope (absent where that is what is asked for)
-- ARGV[1]  a fresh random epoch, for where there is none; ARGV[2] its lifetime, milliseconds
-- ARGV[3]  a fresh random token; ARGV[4] lifetime of a lease, milliseconds
-- ARGV[5]  the caller's knowledge version; ARGV[6] lifetime of the counts, milliseconds; ARGV[7] "tenant:agent"
-- RETURNS  {value} | {false, token} for the maker | {false, false} while another is at it
--          | {false, ''} where another knowledge version has been announced: nobody makes it for this caller
-- An epoch is `random` or `random:version`: with a version only callers of that version are served. A value begins
-- with its epoch, so what was made in an earlier one is a miss, as if it were not there. A lease ends with its epoch.
-- Keys that hold something else (others write to this server too) are as if they were lost, and made again.
local function text(key)
    local value = redis.pcall('GET', key)
    if type(value) == 'table' then
        redis.call('DEL', key)
        return false
    end
    return value
end

local epoch = text(KEYS[1])
-- (A longer one would push the customer's hash out of what an erasure looks at.)
if epoch and #epoch <= 81 and string.match(epoch, '^%x+:?[%w_.-]*$') then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
    epoch = ARGV[1]
    redis.call('SET', KEYS[1], epoch, 'PX', ARGV[2])
end

local function counted(result, answer)
    local field = ARGV[7] .. ':' .. result
    if type(redis.pcall('HINCRBY', KEYS[2], field, 1)) == 'table' then
        -- No number, or one at its end: this count begins anew; no hash: all of them.
        if redis.call('TYPE', KEYS[2]).ok == 'hash' then
            redis.call('HDEL', KEYS[2], field)
        else
            redis.call('DEL', KEYS[2])
        end
        redis.call('HINCRBY', KEYS[2], field, 1)
    end
    redis.call('PEXPIRE', KEYS[2], ARGV[6])
    return answer
end

local announced = string.match(epoch, ':(.+)$')
if announced and announced ~= ARGV[5] then
    return counted('miss', {false, ''})
end
local head = '{"_epoch":"' .. epoch .. '",'
for index = 4, #KEYS do
    local value = text(KEYS[index])
    if value and string.sub(value, 1, #head) == head then
        return counted('hit', {value})
    end
end
local lease = text(KEYS[3])
if lease and string.sub(lease, -#epoch) == epoch then
    -- No longer than a lease is long, whoever wrote it.
    local left = redis.call('PTTL', KEYS[3])
    if left < 0 or left > tonumber(ARGV[4]) then
        redis.call('PEXPIRE', KEYS[3], ARGV[4])
    end
    return counted('wait', {false, false})
end
local token = ARGV[3] .. '.' .. epoch
redis.call('SET', KEYS[3], token, 'PX', ARGV[4])
return counted('miss', {false, token})
