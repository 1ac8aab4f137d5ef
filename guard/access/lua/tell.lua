-- Tells every process that listens.
-- KEYS    1 the channel
-- ARGV    1 the message
-- RETURNS how many heard it
return redis.call('PUBLISH', KEYS[1], ARGV[1])
