-- ARGV: store, lowest id, limit
return {'events', redis.call('XRANGE', key('audit'), ARGV[2], '+', 'COUNT', ARGV[3])}
