-- ARGV: store, event, name, the present version, JSON of the members, JSON of the limits
local _, event, name, version, members, limits = unpack(ARGV)
local found = redis.call('HGET', key('projects'), name)
local present = found and string.match(found, '^%d+') or '0'
if present ~= version then return {'stale'} end
local next = string.format('%d', tonumber(version) + 1)
redis.call('HSET', key('projects'), name, next .. '\n' .. members .. '\n' .. limits)
access_changed()
record(event)
return {'done'}
