-- What the stream holds, without the messages themselves; looks at a part of it.
-- KEYS  1 sess:pending
-- ARGV  1 start of the range   2 most entries to look at   3 group
-- RETURNS {next start or '', {stream id, k, g, entry id, seq, ...}, type of the key, '1' when the group is there, time, ms}
--         entry id and seq are '' where they cannot be read; of a key of another type nothing is told but the type
local start, left = ARGV[1], tonumber(ARGV[2])
local found = {}
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + time[2] / 1000)
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'stream' then return {'', found, kind, '', now} end
local grouped = ''
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  if group[2] == ARGV[3] then grouped = '1' end
end
while left > 0 do
  -- Few at a time: one message may be 8 MiB.
  local page = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', math.min(left, 8))
  for _, entry in ipairs(page) do
    local f = {}
    for i = 1, #entry[2], 2 do f[entry[2][i]] = entry[2][i + 1] end
    local m = f.m or ''
    found[#found + 1] = entry[1]
    found[#found + 1] = f.k or ''
    found[#found + 1] = f.g or ''
    found[#found + 1] = string.match(m, '^{"entry_id":"([%w_.-]+)"') or ''
    found[#found + 1] = string.match(string.sub(m, -80), ',"seq":(%d+),"at":%d+}$') or ''
    start = '(' .. entry[1]
  end
  left = left - #page
  if #page == 0 then return {'', found, kind, grouped, now} end
end
return {start, found, kind, grouped, now}
