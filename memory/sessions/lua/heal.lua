-- Damaged state of a session goes out of use and is made again from MySQL and the stream. What is sound of the context
-- stays; a key of another type, a lock that never ends and fencing numbers that are none are removed.
-- KEYS  1 ctx   2 msgs   3 ids   4 lock   5 fence
-- ARGV  1 the session's actor   2 a random mark   3 highest number that is known to have been given   4 TTL, s
--       then fields of ctx to remove
-- RETURNS {'ctx', ...}   which of ctx, lock and fence were damaged
local call = redis.call
local damaged = {}
local function kind(i) return call('TYPE', KEYS[i]).ok end
local function number(text) return text and #text < 17 and string.match(text, '^%d+$') and tonumber(text) end
local known = tonumber(ARGV[3])

local c = {}
if kind(1) == 'hash' then
  c = call('HMGET', KEYS[1], 'actor', 'deleted', 'opened_at', 'updated_at', 'version', 'seq', 'ceiling', 'first')
end
-- A tombstone stays: late writers must meet it.
if not c[2] then
  local seq = math.max(known, number(c[6]) or 0)
  if c[1] == ARGV[1] then
    local time = call('TIME')
    local now = time[1] .. string.format('%06d', tonumber(time[2]))
    call('HDEL', KEYS[1], 'server')
    if not (number(c[3]) and number(c[5]) and number(c[6]) and number(c[7])) then damaged[1] = 'ctx' end
    -- Another time of opening is another version: a change that somebody based on the former one is refused.
    if not (number(c[3]) and number(c[5])) then call('HSET', KEYS[1], 'opened_at', now, 'version', '0') end
    if not number(c[4]) then call('HSET', KEYS[1], 'updated_at', now) end
    if not number(c[7]) then call('HSET', KEYS[1], 'ceiling', '0') end
    if c[8] and not number(c[8]) then call('HDEL', KEYS[1], 'first') end
    call('HSET', KEYS[1], 'seq', string.format('%.0f', seq))
    for i = 5, #ARGV do call('HDEL', KEYS[1], ARGV[i]) end
  else
    -- No context of this actor's: a mark as observe.lua leaves it, which nobody takes for a session, with the number.
    local mark = kind(1) == 'hash' and not c[1] and (not c[6] or number(c[6]))
    if not mark and call('DEL', KEYS[1]) == 1 then damaged[1] = 'ctx' end
    call('HSETNX', KEYS[1], 'gen', ARGV[2])
    call('HSET', KEYS[1], 'seq', string.format('%.0f', seq))
  end
  call('EXPIRE', KEYS[1], ARGV[4])
end
call('DEL', KEYS[2], KEYS[3])

local lock = kind(4)
if lock ~= 'none' and (lock ~= 'string' or call('PTTL', KEYS[4]) < 0) then
  call('DEL', KEYS[4])
  damaged[#damaged + 1] = 'lock'
end
local fence = kind(5)
if fence ~= 'none' then
  local f = fence == 'hash' and call('HMGET', KEYS[5], 'server', 'next', 'last')
  if not f or f[1] and not (number(f[2]) and number(f[3])) then
    call('DEL', KEYS[5])
    damaged[#damaged + 1] = 'fence'
  end
end
return damaged
