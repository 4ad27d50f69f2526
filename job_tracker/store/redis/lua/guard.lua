-- ARGV[1]: the id of the store that the caller has opened. The script's own arguments follow.
if redis.call('HGET', KEYS[1], 'store') ~= ARGV[1] then return {'lost'} end
