-- Notes that something is not so any more, in place of a note that it was; for a while no such note is taken.
--
-- KEYS[1]  the note
-- ARGV[1]  milliseconds for which `note` changes nothing: longer than whoever found it so before may take to say so
-- RETURNS  1
redis.call('SET', KEYS[1], '0', 'PX', ARGV[1])
return 1
