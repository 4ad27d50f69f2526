-- ARGV: store
return {'queues', redis.call('HGETALL', key('queues'))}
