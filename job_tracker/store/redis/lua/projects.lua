-- ARGV: store
return {'projects', redis.call('HGETALL', key('projects'))}
