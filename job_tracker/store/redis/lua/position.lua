-- ARGV: store, id
return {'position', redis.call('ZCOUNT', key('queued'), '-inf', '(' .. ARGV[2])}
