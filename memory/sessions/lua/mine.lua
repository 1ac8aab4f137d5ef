-- What of one session is still in the stream; scans a part of it.
-- KEYS  1 sess:pending
-- ARGV  1 stream ident of the session   2 start of the range   3 most entries to look at   4 most bytes to answer
-- RETURNS {next start or '', {stream id, g, x, m, p, ...}}
local start, left, room = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found = {}
while left > 0 and room > 0 do
  -- Few at a time: one message may be 8 MiB.
  local page = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', 8)
  for _, entry in ipairs(page) do
    local f = entry[2]
    if f[2] == ARGV[1] then
      for i = 1, 5 do found[#found + 1] = i == 1 and entry[1] or f[2 * i] or '' end
      room = room - #f[8]
    end
    start = '(' .. entry[1]
  end
  left = left - #page
  if #page < 8 then return {'', found} end
end
return {start, found}
