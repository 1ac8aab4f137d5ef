-- Whether any of these stands on the blacklist.
-- KEYS    guard:token:{id} of the token, of its family, of the key that it came of
-- ARGV    none
-- RETURNS how many of them are there: 0 for none
return redis.call('EXISTS', unpack(KEYS))
