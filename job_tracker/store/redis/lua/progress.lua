-- ARGV: store, term, token, id, attempt, progress
local _, _, token, id, attempt, progress = unpack(ARGV)
local now = redis.call('HMGET', job_key(id), 'attempt', 'state')
if now[1] ~= attempt or (now[2] ~= 'launching' and now[2] ~= 'running') then return {'ignored'} end
redis.call('HSET', job_key(id), 'progress', progress)
tell(id, now[2], token)
return {'done', now[2]}
