-- ARGV: store, limit, highest id ('+' for any), lowest id ('-' for any), project ('' for any), caller ('' for any)
-- Returns matching events, newest first, and the id below which the caller continues; '' at the end.
-- It walks at most SCAN entries, since the server does nothing else meanwhile. They are from a stream that
-- has all matches: the caller's, or else the project's, or else the stream of all events.
local SCAN = 1000
local _, limit, highest, lowest, project, caller = unpack(ARGV)
limit = tonumber(limit)
local source = key('audit')
if caller ~= '' then
  source = key('audit:by:' .. caller)
elseif project ~= '' then
  source = key('audit:project:' .. project)
end
local walked = math.min(SCAN, limit)
if caller ~= '' and project ~= '' then walked = SCAN end
local found = redis.call('XREVRANGE', source, highest, lowest, 'COUNT', walked)
local events = {}
for _, entry in ipairs(found) do
  if source ~= key('audit') then entry = redis.call('XRANGE', key('audit'), entry[1], entry[1])[1] end
  if entry and (project == '' or entry[2][2] == project) then
    events[#events + 1] = entry
    if #events == limit then return {'events', events, ''} end
  end
end
return {'events', events, #found == walked and found[walked][1] or ''}
