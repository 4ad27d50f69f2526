-- ARGV: store, term, token, id, version, state, the allowed previous states (',a,b,'), whether the new one is terminal,
-- attempt, started at, finished at, score of its end, ranks, ending, when it is due, its score ('' for
-- never), moves, program, instances, allocation, event
local _, _, token, id, version, state, sources, ends, attempt, started, finished, score, ranks, ending, due,
  due_score, moves, program, instances, allocation, event = unpack(ARGV)
local now = redis.call('HMGET', job_key(id), 'version', 'state', 'instances', 'attempt', 'by', 'queue')
if not now[1] then return {'missing'} end
if now[1] ~= version then return {'stale'} end
if not string.find(sources, ',' .. now[2] .. ',', 1, true) then return {'illegal', now[2]} end

redis.call('HSET', job_key(id), 'version', string.format('%d', tonumber(version) + 1), 'state', state,
  'attempt', attempt, 'started_at', started, 'finished_at', finished, 'ranks', ranks, 'ending', ending,
  'due_at', due, 'moves', moves, 'program', program, 'instances', instances, 'allocation', allocation)
if now[4] ~= attempt then redis.call('HSET', job_key(id), 'progress', '') end
keep_due(id, due_score)
if now[2] ~= state then
  redis.call('ZREM', key(now[2]), id)
  redis.call('ZADD', key(state), id, id)
  local project, by = owner_of(now[5])
  move_of_caller(by, now[2], state, id)
  move_of_queue(now[6] or 'default', now[2], state, id)
  redis.call('ZREM', project_key(project, now[2]), id)
  redis.call('ZADD', project_key(project, state), id, id)
  tally(now[2], -1, -now[3])
  tally(state, 1, instances)
  if ends == '1' then redis.call('ZADD', key('finished'), score, id) end
end
record(event)
publish(id, state, token)
return {'done'}
