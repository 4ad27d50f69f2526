-- ARGV: store, term, ids
for i = 3, #ARGV do redis.call('ZREMRANGEBYSCORE', key('remains'), ARGV[i], ARGV[i]) end
return {'done'}
