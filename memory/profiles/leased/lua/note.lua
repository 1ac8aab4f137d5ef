-- Notes that something was so, or tells whether it was noted and is not forgotten yet.
--
-- KEYS[1]  the note
-- ARGV[1]  lifetime in milliseconds, 0 to ask only
-- RETURNS  1 when there is a note of ours now, else 0: whatever else somebody has put there says nothing
--
-- Where `deny` has been, nothing is noted: who says so may have found it so before that.
local there = redis.pcall('GET', KEYS[1])
if tonumber(ARGV[1]) > 0 and there ~= '0' then
    redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
    return 1
end
return there == '1' and 1 or 0
