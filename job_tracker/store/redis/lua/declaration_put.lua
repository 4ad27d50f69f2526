-- ARGV: store, event, the number of the last change, project, field, content, the limits in all and of a project,
-- 1 if the project must be stored
local _, event, seen, project, field, content, in_all, of_project, must_be_stored = unpack(ARGV)
if declaration_changes() ~= seen then return {'stale'} end
if must_be_stored == '1' and redis.call('HEXISTS', key('projects'), project) == 0 then return {'gone'} end
if redis.call('HEXISTS', key('declarations'), field) == 0 then
  if redis.call('HLEN', key('declarations')) >= tonumber(in_all) then return {'full', in_all, ''} end
  local number = 0
  for _, other in ipairs(redis.call('HKEYS', key('declarations'))) do
    if string.sub(other, 1, #project + 1) == project .. '/' then number = number + 1 end
  end
  if project ~= '' and number >= tonumber(of_project) then return {'full', of_project, project} end
end
local version = string.format('%d', tonumber(seen) + 1)
redis.call('HSET', key('declarations'), field, version .. '\n' .. content)
declarations_changed()
record(event)
return {'done'}
