-- How many entries of each tenant wait in the stream; looks at a part of it.
-- KEYS  1 sess:pending
-- ARGV  1 start of the range   2 most entries to look at
-- RETURNS {next start or '', {tenant or '' where it cannot be told, how many, ...}}
local start, left = ARGV[1], tonumber(ARGV[2])
local counted, flat = {}, {}
local function answer(following)
  for tenant, count in pairs(counted) do
    flat[#flat + 1], flat[#flat + 2] = tenant, count
  end
  return {following, flat}
end
if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then return answer('') end
while left > 0 do
  -- Few at a time: one message may be 8 MiB.
  local page = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', 8)
  for _, entry in ipairs(page) do
    local tenant = ''
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'k' then tenant = string.match(entry[2][i + 1], '^%S+ (%S+) ') or '' end
    end
    counted[tenant] = (counted[tenant] or 0) + 1
    start = '(' .. entry[1]
  end
  left = left - #page
  if #page < 8 then return answer('') end
end
return answer(start)
