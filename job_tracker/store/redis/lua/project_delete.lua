-- ARGV: store, event, name, now
local _, event, name, at = unpack(ARGV)
if redis.call('HDEL', key('projects'), name) == 0 then return {'missing'} end
for _, id in ipairs(redis.call('ZRANGE', key('tokens:' .. name), 0, -1)) do revoke(id, at) end
access_changed()
record(event)
return {'done'}
