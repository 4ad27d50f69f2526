-- ARGV: store, event, id, project ('' for none), its end ('' for never), a time, how many tokens that ended before
-- that time to delete, now, most tokens in all, most of the project ('' for any number), fields and values...
local _, event, id, project, ends, purge_before, purged, now, most, most_of_project = unpack(ARGV, 1, 10)
if redis.call('EXISTS', token_key(id)) == 1 then return {'taken'} end
-- The tokens that make room for this one: those that ended first.
local gone = {}
local number = redis.call('ZCARD', key('tokens'))
if most ~= '' and number >= tonumber(most) then
  gone[1] = redis.call('ZRANGEBYSCORE', key('token-ends'), '-inf', now, 'LIMIT', 0, 1)[1]
  if not gone[1] then return {'full', number, ''} end
end
number = project == '' and 0 or redis.call('ZCARD', key('tokens:' .. project))
if most_of_project ~= '' and number >= tonumber(most_of_project) then
  local ended
  for _, each in ipairs(redis.call('ZRANGEBYSCORE', key('token-ends'), '-inf', now)) do
    if redis.call('HGET', token_key(each), 'project') == project then
      ended = each
      break
    end
  end
  if not ended then return {'full', number, project} end
  gone[#gone + 1] = ended
end
redis.call('HSET', token_key(id), unpack(ARGV, 11))
redis.call('ZADD', key('tokens'), 0, id)
if project ~= '' then redis.call('ZADD', key('tokens:' .. project), 0, id) end
if ends ~= '' then redis.call('ZADD', key('token-ends'), ends, id) end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', key('token-ends'), '-inf', '(' .. purge_before, 'LIMIT', 0, purged)) do
  gone[#gone + 1] = old
end
for _, old in ipairs(gone) do
  local of = redis.call('HGET', token_key(old), 'project') or ''
  if of ~= '' then redis.call('ZREM', key('tokens:' .. of), old) end
  redis.call('ZREM', key('tokens'), old)
  redis.call('ZREM', key('token-ends'), old)
  redis.call('DEL', token_key(old))
end
access_changed()
record(event)
return {'done'}
