-- ARGV: store, id
return {'artifacts', redis.call('HVALS', key('artifacts:' .. ARGV[2]))}
