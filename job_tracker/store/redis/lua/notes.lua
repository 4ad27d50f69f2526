-- ARGV: store, kind
return {'notes', redis.call('HGETALL', key('notes:' .. ARGV[2]))}
