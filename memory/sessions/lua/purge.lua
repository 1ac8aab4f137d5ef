-- Takes entries of erased sessions out of the stream, whoever holds them; looks at a part of it.
-- A drain that has read them already meets the erased row before it commits.
-- KEYS  1 sess:pending
-- ARGV  1 group   2 start of the range   3 most entries to look at   4 '1': only count
--       5 a tenant of which all entries go, or ''   6.. stream idents of sessions
-- RETURNS {next start or '', how many}
local stream, group, start, left, only_count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local tenant, mine, found = ARGV[5], {}, 0
if redis.call('TYPE', stream).ok ~= 'stream' then return {'', 0} end
for i = 6, #ARGV do mine[ARGV[i]] = true end
while left > 0 do
  -- Few at a time: one message may be 8 MiB.
  local page = redis.call('XRANGE', stream, start, '+', 'COUNT', 8)
  for _, entry in ipairs(page) do
    local ident = ''
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'k' then ident = entry[2][i + 1] end
    end
    if mine[ident] or (tenant ~= '' and string.match(ident, '^%S+ (%S+) ') == tenant) then
      found = found + 1
      if not only_count then
        redis.pcall('XACK', stream, group, entry[1])
        redis.call('XDEL', stream, entry[1])
      end
    end
    start = '(' .. entry[1]
  end
  left = left - #page
  if #page < 8 then return {'', found} end
end
return {start, found}
