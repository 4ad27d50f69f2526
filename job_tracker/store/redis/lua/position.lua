-- ARGV: store, id, queue
return {'position', redis.call('ZCOUNT', key('queue:' .. ARGV[3]), '-inf', '(' .. ARGV[2])}
