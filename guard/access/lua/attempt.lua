-- Counts one attempt to log in for an account and an address, before the password is looked at: all or nothing.
-- A fixed window: it begins with the first attempt and is never pushed forward, except once, by the attempt that
-- reaches the limit: from that on it is the lock. A success takes its attempt back (credit.lua).
-- The day in a key's name is that of the window's first attempt, by this server's clock.
-- KEYS    1..3 the account's of the day before, this day and the next; 4..6 the address's
-- ARGV    1, 2 microseconds since 1970 at which this day and the next one begin
--         3, 4 failures that the account, the address may have; 5 window, 6 lock, in milliseconds
-- RETURNS {0, 0} counted; {1, ms} locked for so long, nothing counted
local days, limits = { tonumber(ARGV[1]), tonumber(ARGV[2]) }, { tonumber(ARGV[3]), tonumber(ARGV[4]) }
local window, lock = tonumber(ARGV[5]), tonumber(ARGV[6])
local time = redis.call('TIME')
local at = time[1] * 1000000 + time[2]
local today = at < days[1] and 1 or (at < days[2] and 2 or 3)

local chosen, counts, wait = {}, {}, 0
for who = 1, 2 do
  local first = (who - 1) * 3
  local key, count = KEYS[first + today], 0
  -- a window or a lock that began before midnight goes on
  for _, day in ipairs({ today, today - 1 }) do
    local name = KEYS[first + day]
    local held = name and tonumber(redis.call('GET', name) or '')
    if held and day >= 1 and held > count then key, count = name, held end
  end
  local left = redis.call('PTTL', key)
  if left == -1 then
    redis.call('PEXPIRE', key, lock)  -- nothing of this lives without an end
    left = lock
  end
  if count >= limits[who] and left > wait then wait = left end
  chosen[who], counts[who] = key, count
end
if wait > 0 then return { 1, wait } end

for who = 1, 2 do
  local key, count = chosen[who], counts[who] + 1
  if count == 1 then
    redis.call('SET', key, 1, 'PX', window)
  else
    redis.call('INCR', key)
  end
  if count >= limits[who] then redis.call('PEXPIRE', key, lock) end
end
return { 0, 0 }
