-- Removes what admission did not make: a key of another type, or values that are no numbers of ours.
-- KEYS  those to be looked at
-- ARGV  for each, what it must be: string, hash, zset; count and ring (strings), quota and budget (hashes)
-- RETURNS the places (1, 2, …) of those that were mended
local call, match = redis.call, string.match
local types = {count = 'string', ring = 'string', quota = 'hash', budget = 'hash'}
local function whole(text, pattern)
  return not text or match(text, pattern or '^%d+$') and #text < 18
end
local mended = {}
for i, key in ipairs(KEYS) do
  local is, kind = call('TYPE', key).ok, ARGV[i]
  local good = is == 'none' or is == (types[kind] or kind)
  if not good then
    call('DEL', key)
  elseif is ~= 'none' and kind == 'count' then
    good = whole(call('GET', key))
    if not good then call('DEL', key) end
  elseif is ~= 'none' and kind == 'ring' then
    good = call('STRLEN', key) % 8 == 0
    if not good then call('DEL', key) end
  elseif is ~= 'none' and kind == 'quota' then
    good = whole(call('HGET', key, 'used'))
    if not good then call('DEL', key) end
  elseif is ~= 'none' and kind == 'budget' then
    local b = call('HMGET', key, 'spent', 'number', 'held', 'next', 'lost')
    good = whole(b[1], '^-?%d+$')
    for at = 2, 5 do good = good and whole(b[at]) end
    if not good then
      -- The reservations stay: with `next` in the past the next admission adds them up again.
      call('HDEL', key, 'spent', 'number', 'lost', 'stale')
      call('HSET', key, 'held', '0', 'next', '0')
    end
  end
  if not good then mended[#mended + 1] = i end
end
return mended
