-- Included by the scripts of the hot path: may the session's state in this Redis be used by this actor, now?
-- admit(ctx, server, actor, max_age) -> state, now   or   nil, {code}
--   server   run id of this server: state that another process of it wrote may lack its newest writes
--   max_age  microseconds
--   now      microseconds since 1970 as a string (too many digits for Lua's own tostring)
--   code     MISS (not there, behind, or too old: reopen), OWNER, DELETED
local function admit(ctx, server, actor, max_age)
  local c = redis.call('HMGET', ctx, 'server', 'actor', 'opened_at', 'deleted', 'seq', 'ceiling', 'whole', 'first', 'given',
    'head')
  -- First: the mark of a deleted session names nobody.
  if c[4] then return nil, {'DELETED'} end
  if not c[2] then return nil, {'MISS'} end
  if c[2] ~= actor then return nil, {'OWNER'} end
  if c[1] ~= server then return nil, {'MISS'} end
  local time = redis.call('TIME')
  local now = time[1] .. string.format('%06d', tonumber(time[2]))
  if tonumber(now) - tonumber(c[3]) > tonumber(max_age) then return nil, {'MISS'} end
  return {seq = tonumber(c[5]), ceiling = tonumber(c[6]), whole = c[7] == '1', first = c[8], given = c[9], head = c[10]}, now
end

-- Renews the keys' time to live, and gives one to keys that have none. All three are renewed together, when ctx is due:
-- what was renewed within this second is left alone, for each EXPIRE goes into the append-only file.
local function renew(keys, ttl)
  if redis.call('PTTL', keys[1]) < ttl * 1000 - 1000 then
    for i = 1, 3 do redis.call('EXPIRE', keys[i], ttl) end
  end
end
