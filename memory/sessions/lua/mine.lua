-- What of one session is still in the stream; scans a part of it.
-- KEYS  1 sess:pending
-- ARGV  1 stream ident of the session   2 start of the range   3 most entries to look at   4 most bytes to answer
--       5.. keys (as MySQL has them) of other sessions whose entries are wanted too
-- RETURNS {next start or '', {stream id, k, g, x, m, p, ...}}
local start, left, room = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found, others = {}, {}
for i = 5, #ARGV do others[ARGV[i]] = true end
while left > 0 and room > 0 do
  -- Few at a time: one message may be 8 MiB.
  local page = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', 8)
  for _, entry in ipairs(page) do
    local f = entry[2]
    if f[2] == ARGV[1] or (#ARGV > 4 and others[string.match(f[2], '^%d+')]) then
      found[#found + 1] = entry[1]
      for i = 2, 10, 2 do found[#found + 1] = f[i] or '' end
      room = room - #(f[8] or '')
    end
    start = '(' .. entry[1]
  end
  left = left - #page
  if #page < 8 then return {'', found} end
end
return {start, found}
