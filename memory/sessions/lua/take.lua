-- Hands the drain its next entries: first what a dead worker held, then new ones, within a count and a size.
-- KEYS  1 sess:pending
-- ARGV  1 group   2 consumer   3 most entries   4 most bytes (one entry may exceed it)
--       5 idle time after which an entry's holder counts as dead, ms
-- RETURNS {stream id, {field, value, ...}, ...}, flat
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local left, room = tonumber(ARGV[3]), tonumber(ARGV[4])
local taken = {}
-- A stream that was emptied has lost its group too.
local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
local function keep(entries)
  local bytes = 0
  for _, entry in ipairs(entries) do
    if entry and entry[2] then
      taken[#taken + 1], taken[#taken + 2] = entry[1], entry[2]
      for _, value in ipairs(entry[2]) do bytes = bytes + #value end
    end
  end
  left, room = left - #entries, room - bytes
  return bytes
end
if type(made) == 'table' and made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
  -- A full server refuses to make the group. Only draining makes room, so read without one: two drains may then take
  -- the same entries, which is harmless.
  local start, step = '-', 1
  while left > 0 and room > 0 do
    local page = redis.call('XRANGE', stream, start, '+', 'COUNT', math.min(step, left))
    if #page == 0 then break end
    start = '(' .. page[#page][1]
    step = keep(page) > 65536 and 1 or 8
  end
  return taken
end
local cursor, step = '0-0', 1
repeat
  local claimed = redis.call('XAUTOCLAIM', stream, group, consumer, ARGV[5], cursor, 'COUNT', math.min(step, left))
  cursor = claimed[1]
  step = keep(claimed[2]) > 65536 and 1 or 8
until cursor == '0-0' or left <= 0 or room <= 0
step = 1
while left > 0 and room > 0 do
  local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', math.min(step, left), 'STREAMS', stream, '>')
  if not read then break end
  step = keep(read[1][2]) > 65536 and 1 or 8
end
return taken
