-- ARGV: store, event, id, now
local _, event, id, at = unpack(ARGV)
if not redis.call('HGET', report_key(id), 'replaced_at') then return {'missing'} end
local is_new = redis.call('HSETNX', report_key(id), 'removed_at', at) == 1
local removed = read_report_key(id)
purge_report_keys()
access_changed()
if is_new then record(event) end
return {'key', removed}
