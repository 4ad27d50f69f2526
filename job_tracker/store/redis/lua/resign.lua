-- ARGV: store, the token of the term
if redis.call('HGET', KEYS[1], 'term_token') == ARGV[2] then
  redis.call('HDEL', KEYS[1], 'term_token')
  redis.call('DEL', key('leader'))
  redis.call('PUBLISH', key('resignations'), redis.call('HGET', KEYS[1], 'term'))
end
return {'done'}
