-- ARGV: store, event, id, project ('' for none), its end ('' for never), a time, how many tokens that ended before
-- that time to delete, fields and values...
local _, event, id, project, ends, purge_before, purged = unpack(ARGV, 1, 7)
if redis.call('EXISTS', token_key(id)) == 1 then return {'taken'} end
redis.call('HSET', token_key(id), unpack(ARGV, 8))
redis.call('ZADD', key('tokens'), 0, id)
if project ~= '' then redis.call('ZADD', key('tokens:' .. project), 0, id) end
if ends ~= '' then redis.call('ZADD', key('token-ends'), ends, id) end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', key('token-ends'), '-inf', '(' .. purge_before, 'LIMIT', 0, purged)) do
  local of = redis.call('HGET', token_key(old), 'project') or ''
  if of ~= '' then redis.call('ZREM', key('tokens:' .. of), old) end
  redis.call('ZREM', key('tokens'), old)
  redis.call('ZREM', key('token-ends'), old)
  redis.call('DEL', token_key(old))
end
access_changed()
record(event)
return {'done'}
