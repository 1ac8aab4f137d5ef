-- A queue that is no stream holds no message of ours, and stops every append: it is removed.
-- KEYS  1 sess:pending
-- RETURNS its type when it was removed, '' when there is nothing to remove
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'stream' or kind == 'none' then return '' end
redis.call('DEL', KEYS[1])
return kind
