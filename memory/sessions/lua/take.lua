-- Lets go of what the drain has brought to MySQL, and hands it its next entries: first what a dead worker held, then
-- new ones, within a count and a size.
-- KEYS  1 sess:pending
-- ARGV  1 group   2 consumer   3 most entries (0: only lets go)   4 most bytes (the last step may exceed it)
--       5 idle time after which an entry's holder counts as dead, ms
--       6 '1': new entries are not read here; the caller's next command does it
--       7 how many entries the caller has in hand, apart from those that it lets go of now
--       8.. stream ids that are in MySQL or in the dead letters: acknowledged and removed
-- RETURNS {'1' when it stopped at a limit, so there may be more, else '0',
--          {stream id, k, g, x, m, p, ...}, flat: entries as append.lua writes them,
--          {stream id, {field, value, ...}, ...}, flat: entries of any other shape,
--          '1' when the caller may read the next batch of new entries itself, by count alone}
-- Much of this script's time is the way of each text through Lua: names of fields do not go that way, and a command of
-- the caller's own takes a third of the time. But a command stops at a count only, and 500 messages may be 4 GiB. So it
-- may follow where a whole batch is waiting and all of the stream is not larger than twice the most bytes, and nobody
-- else takes from it, who could leave the caller newer ones. To measure takes as long as there are entries, so no more
-- than 20,000 are.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local call = redis.call
for first = 8, #ARGV, 500 do
  local last = math.min(first + 499, #ARGV)
  redis.pcall('XACK', stream, group, unpack(ARGV, first, last))
  call('XDEL', stream, unpack(ARGV, first, last))
end

local most, size = tonumber(ARGV[3]), tonumber(ARGV[4])
local left, room = most, size
local flat, n, others = {}, 0, {}
local function keep(entries)
  local bytes = 0
  for i = 1, #entries do
    local entry = entries[i]
    local f = entry and entry[2]
    if not f then
      -- Redis 6.2 hands out claimed entries that were deleted meanwhile.
    elseif #f == 10 and f[1] == 'k' and f[3] == 'g' and f[5] == 'x' and f[7] == 'm' and f[9] == 'p' then
      flat[n + 1], flat[n + 2], flat[n + 3] = entry[1], f[2], f[4]
      flat[n + 4], flat[n + 5], flat[n + 6] = f[6], f[8], f[10]
      n = n + 6
      bytes = bytes + #f[8]
    else
      others[#others + 1], others[#others + 2] = entry[1], f
      for j = 1, #f do bytes = bytes + #f[j] end
    end
  end
  left, room = left - #entries, room - bytes
  -- How many to ask for next: messages may have 8 MiB, and how large the next ones are is not known before they are read.
  return bytes > 65536 and 1 or 8
end
local function answer(plain) return {(left <= 0 or room <= 0) and '1' or '0', flat, others, plain and '1' or '0'} end
if left <= 0 then return answer() end

-- coming: how many the caller's next command will have read before that
local function by_count(coming)
  local length = call('XLEN', stream)
  if length > 20000 then return false end
  local held = call('XPENDING', stream, group)[1]
  if length - held - coming < most or held ~= tonumber(ARGV[7]) + most - left then return false end
  local bytes = redis.pcall('MEMORY', 'USAGE', stream, 'SAMPLES', 0)  -- an account may not be allowed to ask
  return type(bytes) == 'number' and bytes <= 2 * size
end

local function claim(cursor, step)
  return redis.pcall('XAUTOCLAIM', stream, group, consumer, ARGV[5], cursor, 'COUNT', math.min(step, left))
end
local step = 1
local claimed = claim('0-0', step)
if claimed.err then
  -- No group: the stream is new, or was emptied and has lost it.
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  if made.err then
    -- A full server refuses to make the group. Only draining makes room, so read without one: two drains may then take
    -- the same entries, which is harmless.
    local start = '-'
    while left > 0 and room > 0 do
      local page = call('XRANGE', stream, start, '+', 'COUNT', math.min(step, left))
      if #page == 0 then break end
      start = '(' .. page[#page][1]
      step = keep(page)
    end
    return answer()
  end
  claimed = claim('0-0', step)
  if claimed.err then return claimed end
end
repeat
  local cursor = claimed[1]
  step = keep(claimed[2])
  if cursor == '0-0' or left <= 0 or room <= 0 then break end
  claimed = claim(cursor, step)
until claimed.err
if ARGV[6] == '1' then return answer(by_count(most)) end
step = 1
while left > 0 and room > 0 do
  local read = call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', math.min(step, left), 'STREAMS', stream, '>')
  if not read then break end
  step = keep(read[1][2])
end
return answer(left <= 0 and by_count(0))
