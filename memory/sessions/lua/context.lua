-- Reads or changes the context, field by field: two writers of different slots never lose one.
-- KEYS  1 ctx   2 msgs   3 ids
-- ARGV  1 run id of this server   2 actor   3 TTL, s   4 max age, us   5 expected versions `{opened_at}-{n}` with commas
--       between, one of which must be current, or ''
--       6 most slots that a session may have   7 how many fields to set, then field and value for each;
--       what follows are fields to remove
-- RETURNS {'OK', {field, value, ...}, number of the window's first message or '', number of the compaction entry before
--          it or '', number of the session's first message or ''}   {'MISS'}   {'OWNER'}   {'DELETED'}
--         {'VERSION', current version}   nothing changed
--         {'FULL'}   more slots than allowed; nothing changed
--@include admit
local c, now = admit(KEYS[1], ARGV[1], ARGV[2], ARGV[4])
if not c then return now end
local v = redis.call('HMGET', KEYS[1], 'opened_at', 'version')
local current = v[1] .. '-' .. v[2]
if ARGV[5] ~= '' and not string.find(',' .. ARGV[5] .. ',', ',' .. current .. ',', 1, true) then
  return {'VERSION', current}
end
local sets = tonumber(ARGV[7])
local first_removed = 8 + sets * 2
local function item(place)
  local text = redis.call('LINDEX', KEYS[2], place) or ''
  return string.match(string.sub(text, -80), ',"seq":(%d+),"at":%-?%d+}$') or '',
    string.match(text, '^{"id":"[^"]*","role":"%a+","entry_type":"compaction"') ~= nil
end
local shown, condensed = item(0)
local pin = ''
if condensed then
  pin = shown
  shown = item(1)
end
local changes = sets > 0 or #ARGV >= first_removed
local slots = 0
local function is_slot(field) return string.sub(field, 1, 5) == 'slot:' end
for i = 8, first_removed - 1, 2 do
  if is_slot(ARGV[i]) and redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then slots = slots + 1 end
end
if slots > 0 then
  for i = first_removed, #ARGV do
    if is_slot(ARGV[i]) then slots = slots - redis.call('HEXISTS', KEYS[1], ARGV[i]) end
  end
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if is_slot(field) then slots = slots + 1 end
  end
  if slots > tonumber(ARGV[6]) then return {'FULL'} end
end
if changes then
  -- A write that a full server refuses comes first, so that a refusal leaves everything as it was.
  redis.call('HINCRBY', KEYS[1], 'version', 1)
  redis.call('HSET', KEYS[1], 'updated_at', now)
  for i = 8, first_removed - 1, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    -- Somebody's own summary stands for all that has left the window until now.
    if ARGV[i] == 'summary' then redis.call('HSET', KEYS[1], 'folded', shown == '' and '0' or shown) end
  end
  for i = first_removed, #ARGV do
    redis.call('HDEL', KEYS[1], ARGV[i])
    if ARGV[i] == 'summary' then redis.call('HDEL', KEYS[1], 'folded') end
  end
end
renew(KEYS, ARGV[3])
local fields = redis.call('HGETALL', KEYS[1])
-- Told once: this context was opened in place of one whose time had run out, or that Redis lost.
redis.call('HDEL', KEYS[1], 'again')
return {'OK', fields, shown, pin, c.first or ''}
