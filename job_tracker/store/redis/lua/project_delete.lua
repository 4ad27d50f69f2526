-- ARGV: store, event, name, now, the states of jobs that have not ended...
local _, event, name, at = unpack(ARGV, 1, 4)
if redis.call('HEXISTS', key('projects'), name) == 0 then return {'missing'} end
local left = 0
for i = 5, #ARGV do left = left + redis.call('ZCARD', project_key(name, ARGV[i])) end
if left > 0 then return {'jobs', left} end
redis.call('HDEL', key('projects'), name)
for _, id in ipairs(redis.call('ZRANGE', key('tokens:' .. name), 0, -1)) do revoke(id, at) end
local declared = 0
for _, field in ipairs(redis.call('HKEYS', key('declarations'))) do
  if string.sub(field, 1, #name + 1) == name .. '/' then
    declared = declared + redis.call('HDEL', key('declarations'), field)
  end
end
if declared > 0 then declarations_changed() end
access_changed()
record(event)
return {'done', 0}
