-- ARGV: store, request key, digest
local id = redis.call('HGET', key('requests'), ARGV[2])
if not id then return {'none'} end
if redis.call('HGET', job_key(id), 'request_digest') ~= ARGV[3] then return {'conflict', id} end
return {'known', job_of(id)}
