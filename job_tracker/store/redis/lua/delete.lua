-- ARGV: store, term, event, ids
local deleted = 0
for i = 4, #ARGV do
  local id = ARGV[i]
  local job = redis.call('HMGET', job_key(id), 'finished_at', 'state', 'algorithm', 'name', 'instances',
    'request_key', 'by', 'tags', 'spec', 'attempt')
  if job[1] and job[1] ~= '' then
    for _, name in ipairs({'jobs', 'finished', job[2], 'algorithm:' .. job[3]}) do
      redis.call('ZREM', key(name), id)
    end
    redis.call('ZREM', key('names'), job[4] .. '\0' .. id)
    local project, name = owner_of(job[7])
    redis.call('ZREM', project_key(project, job[2]), id)
    if name ~= '' then redis.call('ZREM', key('by:' .. name), id) end
    if job[6] ~= '' then redis.call('HDEL', requests_of(project), job[6]) end
    tally(job[2], -1, -job[5])
    for _, name in ipairs(redis.call('HKEYS', key('metrics:' .. id))) do
      redis.call('DEL', key('metrics:' .. id .. ':' .. name))
    end
    drop_tags(id, job[8] or '[]')
    -- What is left outside of the store, in the order of redis/rows.py.
    local left = {id, job[3], cjson.decode(job[9]).home or '', job[10]}
    redis.call('ZADD', key('remains'), id, table.concat(left, '\0'))
    redis.call('DEL', job_key(id), key('metrics:' .. id), key('artifacts:' .. id))
    deleted = deleted + 1
  end
end
if deleted > 0 then record(ARGV[3]) end
return {'done'}
