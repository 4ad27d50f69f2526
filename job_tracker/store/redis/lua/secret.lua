-- ARGV: store, random text to be the secret if there is none yet
redis.call('HSETNX', KEYS[1], 'secret', ARGV[2])
return {'secret', redis.call('HGET', KEYS[1], 'secret')}
