-- ARGV: store, kind, key
return {'note', redis.call('HGET', key('notes:' .. ARGV[2]), ARGV[3])}
