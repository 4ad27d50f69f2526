-- ARGV[2]: the token of the term that the caller leads in; '' for what needs none. The rest follows.
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], 'term_token') ~= ARGV[2] then return {'deposed'} end
