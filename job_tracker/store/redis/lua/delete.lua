-- ARGV: store, term, ids
for i = 3, #ARGV do
  local id = ARGV[i]
  local job = redis.call('HMGET', job_key(id), 'finished_at', 'state', 'algorithm', 'name', 'instances',
    'request_key', 'by')
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
    redis.call('DEL', job_key(id), key('metrics:' .. id), key('artifacts:' .. id))
  end
end
return {'done'}
