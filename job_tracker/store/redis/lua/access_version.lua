-- ARGV: store
return {'version', redis.call('HGET', KEYS[1], 'access') or '0'}
