-- Decides about one piece of work before it starts: everything is taken, or nothing is.
-- KEYS  1 block   2 pause   3 rate   4 hourly   5 6 quota of two business days   7 8 budget of two months
--       9 running of the tenant   10 running of the user   11 refusals that were told   12 13 address in two minutes
--       for runs also  14 fence   15 numbers leased to it   16 run   17 run of the session
-- ARGV  the same from call to call: 1 rate limit   2 its span, us   3 hourly limit   4 limit of an address, a minute
--       5 quota, calls a day   6 7 8 ms at which the first day begins, the second, and at which that ends
--       10 11 of the months: when the second begins, and ends   13 14 of the minutes   9 12 ms from which and until
--       which it is one of these days, months and minutes   15 budget   16 life of a reservation, ms
--       17 running calls of the tenant   18 of the user
--       19 run id of this server   20 admission   21 what the database's copy knows: 0 nothing, 1 a block, 2 a pause,
--       3 both   22 estimate   23 life of a lease, ms; 0: none is taken   24 calls of the day that the ledger has, where
--       that was asked for, else empty   25 1: bring the ledger's sum   26 ms after which the caller does not wait for
--       the answer any more; 0: it does not know this server's time yet
--       for runs also  27 run   28 session   29 tenant   30 user   31 node   32 agent
--       A limit of -1 is none: counted, never refused. -2: this call has nothing to do with it. Money is in the
--       smallest unit, a whole number below 2^53.
-- RETURNS {'OK', now ms, day 1|2, month 1|2, fence, left of: address, rate, hourly, quota, budget, running of the tenant,
--          of the user, ms until there is more of: rate, hourly}   (left -1: no limit, -2: not asked)
--         {'NO', now ms, day, month, which, limit, left, ms until it may pass, refusals to be told in one row, or 0}
--         {'LATE', now ms}            nobody waits any more (the server hung): nothing is taken
--         {'CLOCK', now ms}           none of the periods is the present one: ask again with others
--         {'ASK', now ms}             Redis has no block and no pause where the copy has one: the database decides
--         {'BUDGET', now ms, month, known 0|1, mark}   the ledger's sum is not known here, or may be old: bring it
--         {'QUOTA', now ms, day}      the day's calls may have been lost: bring what the ledger has
--         {'FENCE', now ms, run id, mark}   numbers must be leased from the database
--         {'BROKEN', now ms}          some key is not of our making: mend.lua, and ask again. Nothing is taken; so it is
--         where this ends with an error (WRONGTYPE): all that may fail comes before what is written
local call, num, floor = redis.call, tonumber, math.floor
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = floor(us / 1000)
if now > num(ARGV[26]) then return {'LATE', now} end
if now < num(ARGV[9]) or now >= num(ARGV[12]) then return {'CLOCK', now} end
local per_ip, day, month, minute = num(ARGV[4]), 1, 1, 1
if now >= num(ARGV[7]) then day = 2 end
if now >= num(ARGV[10]) then month = 2 end
if per_ip ~= -2 and now >= num(ARGV[13]) then minute = 2 end

-- The day's call is counted when its limit is looked at, and taken back where a later limit refuses.
local counted

local function refuse(which, limit, left, wait)
  if counted then call('HINCRBY', counted, 'used', -1) end
  -- One row a minute for each limit: the others are counted, and told with the next.
  local this_minute, told = floor(now / 60000), redis.pcall('HMGET', KEYS[11], which, which .. ':n')
  if told.err then
    call('DEL', KEYS[11])
    told = {}
  end
  local untold = (num(told[2] or 0) or 0) + 1
  if num(told[1] or -1) == this_minute then
    call('HSET', KEYS[11], which .. ':n', untold)
    untold = 0
  else
    call('HSET', KEYS[11], which, this_minute, which .. ':n', 0)
  end
  call('PEXPIRE', KEYS[11], 3600000)
  return {'NO', now, day, month, which, limit, left > 0 and left or 0, wait > 1 and wait or 1, untold}
end

-- A key without an end would refuse for ever: whoever finds one gives it an end.
local function mended(key, ms)
  local left = call('PTTL', key)
  if left ~= -1 then return left end
  call('PEXPIRE', key, ms)
  return ms
end

-- 1 block, 2 pause: a key of whatever type closes
if call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  local set = call('MGET', KEYS[1], KEYS[2])
  if set[1] then return refuse('block', 0, 0, mended(KEYS[1], 900000)) end
  if set[2] then return refuse('pause', 0, 0, mended(KEYS[2], 900000)) end
  return {'BROKEN', now}
end
if ARGV[21] ~= '0' then return {'ASK', now} end

local per_span, span, hourly = num(ARGV[1]), num(ARGV[2]), num(ARGV[3])
local small = per_span <= 128  -- such a ring is written whole: one command of a kilobyte is less than three short ones
local ip_key, quota_key, budget_key = KEYS[11 + minute], KEYS[4 + day], KEYS[6 + month]
local ring_key = per_span >= 0 and small and KEYS[3] or KEYS[4]
local had = call('MGET', KEYS[4], ip_key, ring_key)
-- MGET passes over what is no string.
if not had[1] and call('EXISTS', KEYS[4]) == 1 or not had[3] and call('EXISTS', ring_key) == 1
  or not had[2] and per_ip ~= -2 and call('EXISTS', ip_key) == 1 then
  return {'BROKEN', now}
end

-- 3 address: a fixed window of one minute
local ip_used, ip_left = 0, per_ip
if per_ip ~= -2 then
  ip_used = num(had[2] or 0) or -1
  if not (ip_used >= 0) then return {'BROKEN', now} end
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
    ring = had[3] or ''
    size = #ring
  else
    size = call('STRLEN', KEYS[3])
  end
  if size % 8 ~= 0 then return {'BROKEN', now} end
  -- The first within the span: nearly always at the front of the last `limit`, else found by halves. A time from after
  -- now is one from before the clock was set back: it counts until it leaves the ring, or for one span.
  local low, high = size > room and (size - room) / 8 or 0, size / 8
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
  rate_wait = held > 0 and floor((oldest - since) / 1000) + 1 or floor(span / 1000)  -- this call is the first to leave
  if rate_left < 0 then
    if per_span > 0 then mended(KEYS[3], floor(span / 1000)) end
    return refuse('rate', per_span, 0, per_span > 0 and rate_wait or 60000)
  end
  if small then ring = string.sub(ring, low * 8 + 1) .. struct.pack('>d', us) end
end

-- 5 hourly: a fixed window, from its first call on
local hourly_used, hourly_left, hourly_wait = 0, hourly, 0
if hourly ~= -2 then
  if had[1] then
    hourly_used = num(had[1]) or -1
    if not (hourly_used >= 0) then return {'BROKEN', now} end
    hourly_wait = mended(KEYS[4], 3600000)
  end
  if hourly >= 0 then
    hourly_left = hourly - hourly_used - 1
    if hourly_left < 0 then return refuse('hourly', hourly, 0, had[1] and hourly_wait or 3600000) end
  end
end

-- What 9 to 11 look at
local lease, tenant_n, user_n = num(ARGV[23]), 0, 0
if lease > 0 then tenant_n, user_n = call('ZCARD', KEYS[9]), call('ZCARD', KEYS[10]) end
local run, active, before = ARGV[27], nil, nil
if run then
  for i, kind in ipairs({'string', 'hash', 'hash', 'string'}) do
    local found = call('TYPE', KEYS[13 + i]).ok
    if found ~= kind and found ~= 'none' then return {'BROKEN', now} end
  end
  active = call('HMGET', KEYS[16], 'session', 'user', 'agent', 'admission')
  -- The run's own holder takes it up again: the slot goes from the admission before to this one.
  if active[1] == ARGV[28] and active[2] == ARGV[30] and active[3] == ARGV[32] then before = active[4] end
end

-- 6 budget: what is known of the ledger
local budget, budget_left, b, spent, held = num(ARGV[15]), num(ARGV[15]), nil, 0, 0
if budget ~= -2 then
  b = call('HMGET', budget_key, 'server', 'spent', 'held', 'next', 'lost', 'stale', 'number')
  if b[1] ~= ARGV[19] or not b[2] or b[6] or ARGV[25] == '1' then
    return {'BUDGET', now, month, b[1] and b[2] and 1 or 0, b[6] or ''}
  end
  spent, held = num(b[2]), num(b[3] or 0)
  local number = num(b[7])
  if not (spent and spent < 1e16 and spent > -1e16 and spent % 1 == 0 and held and held >= 0 and held < 1e16
    and held % 1 == 0 and num(b[4] or 0) and num(b[5] or 0) and number and number >= 0 and number < 1e16) then
    return {'BROKEN', now}
  end
  if b[4] and num(b[4]) <= now then
    -- A reservation outlived its caller: it is free, and the ledger may hold what the caller could not tell any more.
    local all, first = call('HGETALL', budget_key), nil
    held = 0
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 2) == 'r:' then
        local amount, ends = string.match(all[i + 1], '^(%d+) (%d+)$')
        amount, ends = num(amount), num(ends)
        if not ends or ends <= now or ends > now + 172800000 or amount > 9007199254740991 then
          call('HDEL', budget_key, all[i])
        else
          held = held + amount
          if not first or ends < first then first = ends end
        end
      end
    end
    local mark = string.format('%.0f', us)
    call('HSET', budget_key, 'held', held, 'stale', mark)
    if first then call('HSET', budget_key, 'next', first) else call('HDEL', budget_key, 'next') end
    return {'BUDGET', now, month, 1, mark}
  end
end

-- 7 quota: AI calls of the business day
local quota, quota_left = num(ARGV[5]), num(ARGV[5])
if quota ~= -2 then
  local used = call('HINCRBY', quota_key, 'used', 1)
  if used < 1 then return {'BROKEN', now} end
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
local estimate = num(ARGV[22])
if b then
  if budget >= 0 then
    budget_left = budget - spent - held - estimate
    -- Without an estimate too, nothing goes on a budget that is used up.
    if budget_left < 0 or estimate == 0 and budget_left < 1 then
      if call('PTTL', budget_key) == -1 then call('PEXPIREAT', budget_key, ARGV[9 + month] + 604800000) end
      return refuse('budget', budget, budget_left + estimate, ARGV[9 + month] - now)
    end
  end
end

-- 9 running calls of the tenant, 10 of the user
local member = ARGV[20]
local tenant_running, user_running, tenant_left, user_left = num(ARGV[17]), num(ARGV[18]), -2, -2
if lease > 0 then
  -- Those that died are counted too, until there is no room, or until somebody ends a call.
  local function room(key, limit, n, which)
    local left = limit - n - 1 + call('ZREMRANGEBYSCORE', key, '-inf', now)
      + call('ZREMRANGEBYSCORE', key, now + 3600001, '+inf')  -- no lease is that long: it is not of our making
    if left >= 0 then return left end
    if before and call('ZSCORE', key, before) then return 0 end
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    return left, refuse(which, limit, 0, first[2] and first[2] - now or 1000)
  end
  local no
  tenant_left = tenant_running < 0 and -1 or tenant_running - tenant_n - 1
  if tenant_running >= 0 and tenant_left < 0 then
    tenant_left, no = room(KEYS[9], tenant_running, tenant_n, 'tenant_running')
    if no then return no end
  end
  user_left = user_running < 0 and -1 or user_running - user_n - 1
  if user_running >= 0 and user_left < 0 then
    user_left, no = room(KEYS[10], user_running, user_n, 'user_running')
    if no then return no end
  end
end

-- 11 for runs: one holder a run, one run a session, and a number above all before
local fence = 0
if run then
  if active[1] and not before then return refuse('run', 1, 0, mended(KEYS[16], lease)) end
  local other = call('GET', KEYS[17])
  if other and other ~= '' and other ~= run then return refuse('session', 1, 0, mended(KEYS[17], lease)) end
  local leased = call('HMGET', KEYS[15], 'server', 'last', 'given', 'first')
  -- A number that somebody has set back, or taken away: the last one given is beside it.
  fence = (num(call('GET', KEYS[14]) or 'none') or 1e300) + 1
  local given, first = num(leased[3] or 0) or 1e300, num(leased[4] or 1) or 1e300
  if given ~= given then given = 1e300 end
  if not (fence > given) then fence = given + 1 end
  if not (fence >= first) then fence = first end
  if leased[1] ~= ARGV[19] or fence % 1 ~= 0 or not (num(leased[2] or 'none') and fence <= num(leased[2])) then
    if counted then call('HINCRBY', counted, 'used', -1) end
    call('HSETNX', KEYS[15], 'asked', ARGV[20])
    call('EXPIRE', KEYS[15], 2592000)
    return {'FENCE', now, ARGV[19], call('HGET', KEYS[15], 'asked')}
  end
end

-- Everything is allowed: take it. Ends are times, so that no call pushes them forward, and repaired by each.
if per_ip ~= -2 then call('SET', ip_key, ip_used + 1, 'PXAT', ARGV[12 + minute] + 60000) end
if ring then
  call('SET', KEYS[3], ring, 'PX', floor(span / 1000))
elseif per_span >= 0 then
  if call('APPEND', KEYS[3], struct.pack('>d', us)) > per_span * 16 then
    call('SET', KEYS[3], call('GETRANGE', KEYS[3], -per_span * 8, -1))
  end
  call('PEXPIRE', KEYS[3], floor(span / 1000))
end
if had[1] and hourly ~= -2 then
  call('SET', KEYS[4], hourly_used + 1, 'KEEPTTL')
elseif hourly ~= -2 then
  call('SET', KEYS[4], 1, 'PX', 3600000)
  hourly_wait = 3600000
end
if estimate > 0 and b then
  -- Whole seconds: those who die within one are looked for once.
  local ends, first = (floor((now + ARGV[16]) / 1000) + 1) * 1000, num(b[4] or 1e300)
  -- 13 digits, which Lua writes as they are
  if first <= ends then
    call('HSET', budget_key, 'r:' .. ARGV[20], ARGV[22] .. ' ' .. ends, 'held', held + estimate)
  else
    call('HSET', budget_key, 'r:' .. ARGV[20], ARGV[22] .. ' ' .. ends, 'held', held + estimate, 'next', ends)
  end
  if call('PTTL', budget_key) == -1 then call('PEXPIREAT', budget_key, ARGV[9 + month] + 604800000) end
end
if lease > 0 then
  local ends = now + lease
  if before then
    call('ZREM', KEYS[9], before)
    call('ZREM', KEYS[10], before)
  end
  call('ZADD', KEYS[9], ends, member)
  call('ZADD', KEYS[10], ends, member)
  -- Members end by their scores. The key's own end is looked at when it is new and once in a while, since whoever
  -- renews or ends a call looks at it too.
  if tenant_n % 16 == 0 and call('PTTL', KEYS[9]) < 43200000 then call('PEXPIRE', KEYS[9], 86400000) end
  if user_n % 16 == 0 and call('PTTL', KEYS[10]) < 43200000 then call('PEXPIRE', KEYS[10], 86400000) end
end
if run then
  call('SET', KEYS[14], fence, 'EX', 2592000)
  call('HSET', KEYS[15], 'given', fence)
  call('EXPIRE', KEYS[15], 2592000)
  call('SET', KEYS[17], run, 'PX', lease)
  call('DEL', KEYS[16])
  call('HSET', KEYS[16], 'run', run, 'session', ARGV[28], 'tenant', ARGV[29], 'user', ARGV[30], 'node', ARGV[31],
    'agent', ARGV[32], 'admission', member, 'fence', fence, 'started_at', now)
  call('PEXPIRE', KEYS[16], lease)
end
return {'OK', now, day, month, fence, ip_left, rate_left, hourly_left, quota_left, budget_left, tenant_left, user_left,
  rate_wait, hourly_wait}
