-- ARGV: store, name, now, the states of jobs that have not ended...
local _, name, at = unpack(ARGV, 1, 3)
if redis.call('HEXISTS', key('projects'), name) == 0 then return {'missing'} end
local left = 0
for i = 4, #ARGV do left = left + redis.call('ZCARD', project_key(name, ARGV[i])) end
if left > 0 then return {'jobs', left} end
redis.call('HDEL', key('projects'), name)
for _, id in ipairs(redis.call('ZRANGE', key('tokens:' .. name), 0, -1)) do revoke(id, at) end
access_changed()
return {'done', 0}
