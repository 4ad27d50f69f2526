-- ARGV: store
local id = redis.call('ZRANGE', key('queued'), 0, 0)[1]
if not id then return {'none'} end
return {'job', job_of(id)}
