-- ARGV: store, limit
return {'due', redis.call('ZRANGEBYSCORE', key('due'), '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])}
