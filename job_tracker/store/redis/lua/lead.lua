-- ARGV: store, holder, the lifetime in milliseconds, the token of the term to renew ('' for none), a token
-- for a new term
local _, holder, lifetime, token, fresh = unpack(ARGV)
if token == '' then
  if redis.call('EXISTS', key('leader')) == 1 then return {'held'} end
  token = fresh
  redis.call('HINCRBY', KEYS[1], 'term', 1)
  redis.call('HSET', KEYS[1], 'term_token', token)
  if not are_queue_sets_whole() then make_queue_sets() end
elseif redis.call('HGET', KEYS[1], 'term_token') ~= token then
  return {'held'}
end
local number = redis.call('HGET', KEYS[1], 'term')
redis.call('HSET', key('leader'), 'holder', holder, 'term', number)
redis.call('PEXPIRE', key('leader'), lifetime)
return {'leads', number, token}
