-- ARGV[2]: the token of the caller's term; '' for writes outside of terms. The script's own arguments follow.
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], 'term_token') ~= ARGV[2] then return {'term over'} end
