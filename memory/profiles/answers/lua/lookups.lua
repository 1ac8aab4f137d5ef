-- How often answers were asked for.
--
-- KEYS[1]  counts of lookups
-- RETURNS  {field, count, ...}; a field is "tenant:agent:result", a count has at most 15 digits
-- What is spelled otherwise is left out: others write to this server too. The next lookup mends what is no hash.
local found = redis.pcall('HGETALL', KEYS[1])
local answer = {}
if found.err then
    return answer
end
for index = 1, #found, 2 do
    local field, count = found[index], found[index + 1]
    if string.match(field, '^[%w_.-]+:%l+:%l+$') and string.match(count, '^%d+$') and #count <= 15 then
        answer[#answer + 1] = field
        answer[#answer + 1] = count
    end
end
return answer
