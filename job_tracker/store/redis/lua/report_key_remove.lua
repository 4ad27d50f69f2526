-- ARGV: store, id, now
local _, id, at = unpack(ARGV)
if not redis.call('HGET', report_key(id), 'replaced_at') then return {'missing'} end
redis.call('HSETNX', report_key(id), 'removed_at', at)
local removed = read_report_key(id)
purge_report_keys()
access_changed()
return {'key', removed}
