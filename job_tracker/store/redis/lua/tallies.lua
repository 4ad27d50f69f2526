-- ARGV: store
return {'tallies', redis.call('HGETALL', key('tallies'))}
