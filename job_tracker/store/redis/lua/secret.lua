-- ARGV: store, a random text, the secret if there is none yet
redis.call('HSETNX', KEYS[1], 'secret', ARGV[2])
return {'secret', redis.call('HGET', KEYS[1], 'secret')}
