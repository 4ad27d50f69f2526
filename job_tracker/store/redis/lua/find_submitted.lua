-- ARGV: store, project, request key, digest
local id = redis.call('HGET', requests_of(ARGV[2]), ARGV[3])
if not id then return {'none'} end
if redis.call('HGET', job_key(id), 'request_digest') ~= ARGV[4] then return {'conflict', id} end
return {'known', job_of(id)}
