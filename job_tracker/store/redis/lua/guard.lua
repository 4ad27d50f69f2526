-- ARGV[1]: the id of the store that the caller has opened; the script's own arguments come after it.
if redis.call('HGET', KEYS[1], 'store') ~= ARGV[1] then return {'lost'} end
