-- ARGV: store, limit
return {'remains', redis.call('ZRANGE', key('remains'), 0, tonumber(ARGV[2]) - 1)}
