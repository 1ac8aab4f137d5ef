-- A success: the account begins anew, and the address gets back the attempt that it was.
-- KEYS    1..3 the account's of three days; 4..6 the address's
-- ARGV    none
-- RETURNS 1
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
for place = 4, 6 do
  local count = tonumber(redis.call('GET', KEYS[place]) or '0')
  if count == 1 then
    redis.call('DEL', KEYS[place])
  elseif count and count > 1 then
    redis.call('DECR', KEYS[place])
    break
  end
end
return 1
