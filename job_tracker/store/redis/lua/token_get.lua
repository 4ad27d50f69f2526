-- ARGV: store, id
return {'token', redis.call('HGETALL', token_key(ARGV[2]))}
