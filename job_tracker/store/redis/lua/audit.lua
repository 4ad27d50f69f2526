-- Stores an event, JSON of {lowest id, at, project, caller, action, target, content}, or '' for none.
-- `target`, if given, replaces the target in the event. Ids increase, even if a clock is set back.
local function record(event, target)
  if event == '' then return end
  local lowest, at, project, caller, action, own, content = unpack(cjson.decode(event))
  local last = tonumber(redis.call('HGET', KEYS[1], 'audit') or '0')
  local id = string.format('%.0f', math.max(last + 1, tonumber(lowest)))
  redis.call('HSET', KEYS[1], 'audit', id)
  redis.call('XADD', key('audit'), id .. '-0', 'project', project, 'caller', caller, 'at', at, 'action', action,
    'target', target or own, 'content', content)
  if project ~= '' then redis.call('XADD', key('audit:project:' .. project), id .. '-0', '', '') end
  if caller ~= '' then redis.call('XADD', key('audit:by:' .. caller), id .. '-0', '', '') end
end
