-- ARGV: store, event, the number of the last change, field
local _, event, seen, field = unpack(ARGV)
if declaration_changes() ~= seen then return {'stale'} end
if redis.call('HDEL', key('declarations'), field) == 0 then return {'missing'} end
declarations_changed()
record(event)
return {'done'}
