-- Decides about one piece of work before it starts: everything is taken, or nothing is.
-- KEYS  1 block   2 pause   3 rate   4 hourly   5 6 quota of two business days   7 8 budget of two months
--       9 running of the tenant   10 running of the user   11 refusals that were told   12 13 address in two minutes
--       for runs also  14 fence   15 numbers leased to it   16 run   17 run of the session
-- ARGV  the same from call to call: 1 rate limit   2 its span, us   3 hourly limit   4 limit of an address, a minute
--       5 quota, calls a day   6 7 8 ms at which the first day begins, the second, and at which that ends
--       9 10 11 the same of the months   12 13 14 the same of the minutes   15 budget   16 life of a reservation, ms
--       17 running calls of the tenant   18 of the user
--       19 run id of this server   20 admission   21 what the database's copy knows: 0 nothing, 1 a block, 2 a pause,
--       3 both   22 estimate   23 life of a lease, ms; 0: none is taken   24 calls of the day that the ledger has, where
--       that was asked for, else empty   25 1: bring the ledger's sum
--       for runs also  26 run   27 session   28 tenant   29 user   30 node
--       A limit of -1 is none: counted, never refused. -2: this call has nothing to do with it. Money is in the
--       smallest unit, a whole number below 2^53.
-- RETURNS {'OK', now ms, day 1|2, month 1|2, fence, left of: address, rate, hourly, quota, budget, running of the tenant,
--          of the user, ms until there is more of: rate, hourly}   (left -1: no limit, -2: not asked)
--         {'NO', now ms, day, month, which, limit, left, ms until it may pass, refusals to be told in one row, or 0}
--         {'CLOCK', now ms}           none of the periods is the present one: ask again with others
--         {'ASK', now ms}             Redis has no block and no pause where the copy has one: the database decides
--         {'BUDGET', now ms, month, known 0|1, mark}   the ledger's sum is not known here, or may be old: bring it
--         {'QUOTA', now ms, day}      the day's calls may have been lost: bring what the ledger has
--         {'FENCE', now ms, run id, mark}   numbers must be leased from the database
local call, num, floor, max = redis.call, tonumber, math.floor, math.max
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = floor(us / 1000)

local function at(first, second, over)
  if now < num(second) then return now >= num(first) and 1 or nil end
  return now < num(over) and 2 or nil
end
local day, month, per_ip, minute = at(ARGV[6], ARGV[7], ARGV[8]), at(ARGV[9], ARGV[10], ARGV[11]), num(ARGV[4]), 1
if per_ip ~= -2 then minute = at(ARGV[12], ARGV[13], ARGV[14]) end
if not (day and month and minute) then return {'CLOCK', now} end

-- The day's call is counted when its limit is looked at, and taken back where a later limit refuses.
local counted
local function take_back()
  if counted then call('HINCRBY', counted, 'used', -1) end
end

local function refuse(which, limit, left, wait)
  take_back()
  -- One row a minute for each limit: the others are counted, and told with the next.
  local this_minute, told = floor(now / 60000), call('HMGET', KEYS[11], which, which .. ':n')
  local untold = (num(told[2]) or 0) + 1
  if num(told[1]) == this_minute then
    call('HSET', KEYS[11], which .. ':n', untold)
    untold = 0
  else
    call('HSET', KEYS[11], which, this_minute, which .. ':n', 0)
  end
  call('PEXPIRE', KEYS[11], 3600000)
  return {'NO', now, day, month, which, limit, max(left, 0), max(wait, 1), untold}
end

-- A key without an end would refuse for ever: whoever finds one gives it an end.
local function mended(key, ms)
  local left = call('PTTL', key)
  if left ~= -1 then return left end
  call('PEXPIRE', key, ms)
  return ms
end

-- 1 block, 2 pause
local per_span, span = num(ARGV[1]), num(ARGV[2])
local small = per_span <= 128  -- such a ring is written whole: one command of a kilobyte is less than three short ones
local ip_key, quota_key, budget_key = KEYS[11 + minute], KEYS[4 + day], KEYS[6 + month]
local had = call('MGET', KEYS[1], KEYS[2], KEYS[4], ip_key or KEYS[1], small and KEYS[3] or KEYS[1])
if had[1] then return refuse('block', 0, 0, mended(KEYS[1], 900000)) end
if had[2] then return refuse('pause', 0, 0, mended(KEYS[2], 900000)) end
if ARGV[21] ~= '0' then return {'ASK', now} end

-- 3 address: a fixed window of one minute
local ip_used, ip_left = 0, per_ip
if per_ip ~= -2 then
  ip_used = num(had[4]) or 0
  if per_ip >= 0 then
    ip_left = per_ip - ip_used - 1
    if ip_left < 0 then
      mended(ip_key, 120000)
      return refuse('ip', per_ip, 0, ARGV[12 + minute] - now)
    end
  end
end

-- 4 rate: times of the last admissions, eight bytes each, the oldest first; in front may be some that count no more
local ring, rate_left, rate_wait = nil, per_span, 0
if per_span >= 0 then
  local size, room, since, oldest = 0, per_span * 8, us - span, nil
  if small then
    ring = had[5] or ''
    size = #ring
  else
    size = call('STRLEN', KEYS[3])
  end
  if size % 8 ~= 0 then  -- not of our making
    size, ring = 0, small and '' or nil
    call('DEL', KEYS[3])
  end
  -- The first within the span: nearly always at the front of the last `limit`, else found by halves. A time from after
  -- now is one from before the clock was set back: it counts until it leaves the ring, or for one span.
  local low, high = max(0, size - room) / 8, size / 8
  local first, top = low, high
  while low < high do
    local slot = first or floor((low + high) / 2)
    if small then
      oldest = struct.unpack('>d', ring, slot * 8 + 1)
    else
      oldest = struct.unpack('>d', call('GETRANGE', KEYS[3], slot * 8, slot * 8 + 7))
    end
    if oldest >= since and oldest <= us + span then high = slot else low = slot + 1 end
    first = nil
  end
  if low < top and small then
    oldest = struct.unpack('>d', ring, low * 8 + 1)
  elseif low < top then
    oldest = struct.unpack('>d', call('GETRANGE', KEYS[3], low * 8, low * 8 + 7))
  end
  local held = size / 8 - low
  rate_left = per_span - held - 1
  if held > 0 then rate_wait = floor((oldest - since) / 1000) + 1 end
  if rate_left < 0 then
    if per_span > 0 then mended(KEYS[3], floor(span / 1000)) end
    return refuse('rate', per_span, 0, per_span > 0 and rate_wait or 60000)
  end
  if small then ring = string.sub(ring, low * 8 + 1) .. struct.pack('>d', us) end
end

-- 5 hourly: a fixed window, from its first call on
local hourly, hourly_left, hourly_wait = num(ARGV[3]), num(ARGV[3]), 0
if hourly ~= -2 then
  local used = num(had[3]) or 0
  if had[3] then hourly_wait = mended(KEYS[4], 3600000) end
  if hourly >= 0 then
    hourly_left = hourly - used - 1
    if hourly_left < 0 then return refuse('hourly', hourly, 0, had[3] and hourly_wait or 3600000) end
  end
end

-- 6 budget: what is known of the ledger
local budget, budget_left, b = num(ARGV[15]), num(ARGV[15]), nil
if budget ~= -2 then
  b = call('HMGET', budget_key, 'server', 'spent', 'held', 'next', 'lost', 'stale')
  if b[1] ~= ARGV[19] or not b[2] or b[6] or ARGV[25] == '1' then
    return {'BUDGET', now, month, b[2] and 1 or 0, b[6] or ''}
  end
  if b[4] and num(b[4]) <= now then
    -- A reservation outlived its caller: it is free, and the ledger may hold what the caller could not tell any more.
    local all, held, first = call('HGETALL', budget_key), 0, nil
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 2) == 'r:' then
        local amount, ends = string.match(all[i + 1], '^(%d+) (%d+)$')
        amount, ends = num(amount), num(ends)
        if not ends or ends <= now then
          call('HDEL', budget_key, all[i])
        else
          held = held + amount
          if not first or ends < first then first = ends end
        end
      end
    end
    local mark = string.format('%.0f', us)
    call('HSET', budget_key, 'held', string.format('%.0f', held), 'stale', mark)
    if first then call('HSET', budget_key, 'next', string.format('%.0f', first)) else call('HDEL', budget_key, 'next') end
    return {'BUDGET', now, month, 1, mark}
  end
end

-- 7 quota: AI calls of the business day
local quota, quota_left = num(ARGV[5]), num(ARGV[5])
if quota ~= -2 then
  local used = call('HINCRBY', quota_key, 'used', 1)
  if used == 1 then
    if ARGV[24] ~= '' then
      used = call('HINCRBY', quota_key, 'used', ARGV[24])
    elseif b and b[5] and num(b[5]) >= num(ARGV[5 + day]) then
      call('DEL', quota_key)
      return {'QUOTA', now, day}
    end
    call('PEXPIREAT', quota_key, ARGV[6 + day])
  elseif call('PTTL', quota_key) == -1 then
    call('PEXPIREAT', quota_key, ARGV[6 + day])
  end
  counted = quota_key
  if quota >= 0 then
    quota_left = quota - used
    if quota_left < 0 then return refuse('quota', quota, 0, ARGV[6 + day] - now) end
  end
end

-- 8 budget: the estimate beside what is spent and what others hold
local estimate, held = num(ARGV[22]), 0
if b then
  held = num(b[3]) or 0
  if budget >= 0 then
    budget_left = budget - num(b[2]) - held - estimate
    -- Without an estimate too, nothing goes on a budget that is used up.
    if budget_left < 0 or estimate == 0 and budget_left < 1 then
      if call('PTTL', budget_key) == -1 then call('PEXPIREAT', budget_key, ARGV[10 + month] + 604800000) end
      return refuse('budget', budget, budget_left + estimate, ARGV[10 + month] - now)
    end
  end
end

-- 9 running calls of the tenant, 10 of the user
local lease, member = num(ARGV[23]), ARGV[26] or ARGV[20]
local function slots(key, limit, which)
  if lease == 0 then return -2 end
  if limit < 0 then return -1 end
  -- Those that died are counted too, until there is no room, or until somebody ends a call.
  local left = limit - call('ZCARD', key) - 1
  if left >= 0 then return left end
  left = left + call('ZREMRANGEBYSCORE', key, '-inf', now)
  if left >= 0 then return left end
  if call('ZSCORE', key, member) then return 0 end  -- it holds one already
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return left, refuse(which, limit, 0, first[2] and first[2] - now or 1000)
end
local tenant_left, no = slots(KEYS[9], num(ARGV[17]), 'tenant_running')
if no then return no end
local user_left
user_left, no = slots(KEYS[10], num(ARGV[18]), 'user_running')
if no then return no end

-- 11 fence, for runs: one run a session, and a number above all before
local fence = 0
if ARGV[26] then
  local other = call('GET', KEYS[17])
  if other and other ~= ARGV[26] then return refuse('session', 1, 0, mended(KEYS[17], lease)) end
  local leased = call('HMGET', KEYS[15], 'server', 'last')
  fence = (num(call('GET', KEYS[14])) or 1e300) + 1
  if leased[1] ~= ARGV[19] or not leased[2] or fence > num(leased[2]) then
    take_back()
    call('HSETNX', KEYS[15], 'asked', ARGV[20])
    call('EXPIRE', KEYS[15], 2592000)
    return {'FENCE', now, ARGV[19], call('HGET', KEYS[15], 'asked')}
  end
end

-- Everything is allowed: take it.
if per_ip ~= -2 and (call('INCR', ip_key) == 1 or call('PTTL', ip_key) == -1) then
  call('PEXPIRE', ip_key, 120000)
end
if ring then
  call('SET', KEYS[3], ring, 'PX', tostring(floor(span / 1000)))
elseif per_span >= 0 then
  if call('APPEND', KEYS[3], struct.pack('>d', us)) > per_span * 16 then
    call('SET', KEYS[3], call('GETRANGE', KEYS[3], -per_span * 8, -1))
  end
  call('PEXPIRE', KEYS[3], floor(span / 1000))
end
if hourly ~= -2 and call('INCR', KEYS[4]) == 1 then
  call('PEXPIRE', KEYS[4], 3600000)
  hourly_wait = 3600000
end
if estimate > 0 and b then
  -- Whole seconds: those who die within one are looked for once.
  local ends, first = (floor((now + ARGV[16]) / 1000) + 1) * 1000, num(b[4])
  local open, sum = ARGV[22] .. string.format(' %.0f', ends), string.format('%.0f', held + estimate)
  if first and first <= ends then
    call('HSET', budget_key, 'r:' .. ARGV[20], open, 'held', sum)
  else
    call('HSET', budget_key, 'r:' .. ARGV[20], open, 'held', sum, 'next', string.format('%.0f', ends))
  end
  if call('PTTL', budget_key) == -1 then call('PEXPIREAT', budget_key, ARGV[10 + month] + 604800000) end
end
if lease > 0 then
  local ends = string.format('%.0f', now + lease)
  call('ZADD', KEYS[9], ends, member)
  call('ZADD', KEYS[10], ends, member)
  -- Members end by their scores; the key itself is given an end when it is new, and by whoever renews or ends a call.
  local function mind(key, limit, left)
    if limit >= 0 and left == limit - 1 or limit < 0 and call('PTTL', key) < 43200000 then
      call('PEXPIRE', key, 86400000)
    end
  end
  mind(KEYS[9], num(ARGV[17]), tenant_left)
  mind(KEYS[10], num(ARGV[18]), user_left)
end
if ARGV[26] then
  call('SET', KEYS[14], string.format('%.0f', fence), 'EX', 2592000)
  call('EXPIRE', KEYS[15], 2592000)
  call('SET', KEYS[17], ARGV[26], 'PX', lease)
  call('HSET', KEYS[16], 'run', ARGV[26], 'session', ARGV[27], 'tenant', ARGV[28], 'user', ARGV[29], 'node', ARGV[30],
    'fence', fence, 'started_at', now)
  call('PEXPIRE', KEYS[16], lease)
end
return {'OK', now, day, month, fence, ip_left, rate_left, hourly_left, quota_left, budget_left, tenant_left, user_left,
  rate_wait, hourly_wait}
