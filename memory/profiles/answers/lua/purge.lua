-- Makes every answer of an agent unreachable at once, in all processes; the values die with their lifetime.
--
-- KEYS[1]  epoch of the tenant's agent
-- ARGV[1]  a fresh random epoch; ARGV[2] its lifetime, milliseconds
-- ARGV[3]  the knowledge version to serve alone from now on, '' for the one that was announced before, if any
-- ARGV[4]  '1' where every version is served again
-- RETURNS  the knowledge version that is served alone now, '' for any
local epoch, version = ARGV[1], ARGV[3]
local former = redis.pcall('GET', KEYS[1])
if version == '' and ARGV[4] ~= '1' and type(former) == 'string' then
    version = string.match(former, '^%x+:([%w_.-]+)$') or ''
end
if version ~= '' then
    epoch = epoch .. ':' .. version
end
redis.call('SET', KEYS[1], epoch, 'PX', ARGV[2])
return version
