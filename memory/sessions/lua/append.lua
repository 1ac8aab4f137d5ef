-- Numbers a batch of messages and queues it for MySQL: all of it or nothing.
-- KEYS  1 ctx   2 msgs   3 ids   4 sess:pending
-- ARGV  1 run id of this server   2 actor   3 TTL, s   4 max age, us   5 window, messages   6 stream ident
--       7 trace id   8 '1' when MySQL does not have those of the given entry ids that `ids` does not have
--       9 how many of the newest messages to answer with (0: none)   10 state for new receipts: q or c
--       then five for each message: entry id, '1' if the caller gave it, digest,
--       body (JSON object without its end), head (the same cut short for the window; '' where body is short enough)
-- RETURNS
--   {'OK', now us, first seq, {seq, at us, stream id or '=' .. state}..., flat, {window items}}
--   {'MISS'} reopen   {'OWNER'}   {'DELETED'}
--   {'CONFLICT', entry id}   same id, other content; nothing written
--   {'CHECK'}   an entry id may be older than `ids`: ask MySQL, then call with ARGV 8 = '1'
--   {'LEASE', ceiling, the Redis it was leased to}   not enough leased numbers left
-- A repeated entry keeps its first receipt; the new ones of the batch are numbered next to each other.
--@include admit
local c, now = admit(KEYS[1], ARGV[1], ARGV[2], ARGV[4])
if not c then return now end

local ids, count = {}, 0
for i = 11, #ARGV, 5 do
  count = count + 1
  ids[count] = ARGV[i]
end
local known = redis.call('HMGET', KEYS[3], unpack(ids))

-- 1. What is new, what is a repeat, what clashes
local plan, mine, fresh, unsure = {}, {}, 0, false
for n = 1, count do
  local at = 6 + n * 5
  local id, digest = ARGV[at], ARGV[at + 2]
  if known[n] then
    local seq, when, state, was = string.match(known[n], '^(%d+):(%d+):(%a):(.+)$')
    if was ~= digest then return {'CONFLICT', id} end
    plan[n] = {seq, when, '=' .. state}
  elseif mine[id] then
    if mine[id].digest ~= digest then return {'CONFLICT', id} end
    plan[n] = mine[id]
  else
    fresh = fresh + 1
    plan[n] = {digest = digest, offset = fresh, arg = at}
    mine[id] = plan[n]
    if ARGV[at + 1] == '1' then unsure = true end
  end
end
if unsure and not c.whole and ARGV[8] ~= '1' then return {'CHECK'} end
if fresh > 0 and c.seq + fresh > c.ceiling then
  return {'LEASE', string.format('%.0f', c.ceiling), redis.call('HGET', KEYS[1], 'origin')}
end

-- 2. Write. HSET comes first: a full server refuses it, and then nothing at all has been written.
if fresh > 0 then
  local receipts, items = {}, {}
  for n = 1, count do
    local p = plan[n]
    if p.offset and not p[1] then
      local seq = string.format('%.0f', c.seq + p.offset)
      local tail = ',"seq":' .. seq .. ',"at":' .. now .. '}'
      local body, head = ARGV[p.arg + 3], ARGV[p.arg + 4]
      p[1], p[2], p.item = seq, now, body .. tail
      receipts[#receipts + 1] = ARGV[p.arg]
      receipts[#receipts + 1] = seq .. ':' .. now .. ':' .. ARGV[10] .. ':' .. p.digest
      items[#items + 1] = head == '' and p.item or head .. tail
    end
  end
  local first = c.first or string.format('%.0f', c.seq + 1)
  c.first = first
  redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', c.seq + fresh), 'first', first)
  redis.call('HSET', KEYS[3], unpack(receipts))
  redis.call('RPUSH', KEYS[2], unpack(items))
  redis.call('LTRIM', KEYS[2], -tonumber(ARGV[5]), -1)
  for n = 1, count do
    local p = plan[n]
    if p.item then
      p[3] = redis.call('XADD', KEYS[4], '*', 'k', ARGV[6], 'g', p.digest, 'x', ARGV[7], 'm', p.item)
      p.item = nil
    end
  end
end
renew(KEYS, ARGV[3])

-- 3. Answer
local reply = {'OK', now, c.first or '', {}, {}}
for n = 1, count do
  local flat, p = reply[4], plan[n]
  flat[#flat + 1], flat[#flat + 2], flat[#flat + 3] = p[1], p[2], p[3]
end
if ARGV[9] ~= '0' then reply[5] = redis.call('LRANGE', KEYS[2], -tonumber(ARGV[9]), -1) end
return reply
