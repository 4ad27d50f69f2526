-- ARGV: store, id
return {'names', redis.call('HKEYS', key('metrics:' .. ARGV[2]))}
