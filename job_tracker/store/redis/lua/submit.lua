-- ARGV: store, token, most queued, project, most queued in the project ('' for any number), name of the caller, most
-- queued of the caller ('' for any number), most queued in the queue ('' for any number),
-- 1 if the project must be stored, last id that the caller has seen, request key ('' for none), its digest, name,
-- algorithm, instances, submitted at, spec, when it is due, its score ('' for never), moves, tags (JSON), queue, event
local _, token, most, project, most_in_project, by, most_of_caller, most_in_queue, must_be_stored, seen, request, digest,
  name, algorithm, instances, at, spec, due, due_score, moves, tags, queue, event = unpack(ARGV)
if request ~= '' then
  local known = redis.call('HGET', requests_of(project), request)
  if known then
    if redis.call('HGET', job_key(known), 'request_digest') ~= digest then return {'conflict', known} end
    return {'known', job_of(known)}
  end
end
if must_be_stored == '1' and redis.call('HEXISTS', key('projects'), project) == 0 then return {'gone'} end
local queued = redis.call('ZCARD', key('queued'))
if queued >= tonumber(most) then return {'full', queued, ''} end
if most_in_project ~= '' then
  queued = redis.call('ZCARD', project_key(project, 'queued'))
  if queued >= tonumber(most_in_project) then return {'full', queued, project} end
end
if most_of_caller ~= '' and by ~= '' then
  queued = redis.call('ZCARD', key('queued-by:' .. by))
  if queued >= tonumber(most_of_caller) then return {'full', queued, '', by} end
end
if most_in_queue ~= '' then
  queued = redis.call('ZCARD', key('queue:' .. queue))
  if queued >= tonumber(most_in_queue) then return {'full', queued, '', '', queue} end
end

-- `seen` keeps a server that lost its last second (appendfsync everysec) from giving an id twice.
local last = tonumber(redis.call('GET', key('last-id')) or '0')
local id = string.format('%d', math.max(last, tonumber(seen)) + 1)
redis.call('SET', key('last-id'), id)
redis.call('HSET', job_key(id), 'id', id, 'version', '1', 'state', 'queued', 'name', name,
  'algorithm', algorithm, 'instances', instances, 'attempt', '0', 'submitted_at', at, 'started_at', '',
  'finished_at', '', 'request_key', request, 'request_digest', digest, 'spec', spec, 'ranks', '[]',
  'ending', '', 'progress', '', 'due_at', due, 'moves', moves, 'by', project .. '/' .. by, 'queue', queue)
if tags ~= '[]' then
  redis.call('HSET', job_key(id), 'tags', tags)
  keep_tags(id, tags)
end
if request ~= '' then redis.call('HSET', requests_of(project), request, id) end
redis.call('ZADD', key('jobs'), id, id)
redis.call('ZADD', key('queued'), id, id)
redis.call('ZADD', project_key(project, 'queued'), id, id)
if by ~= '' then redis.call('ZADD', key('by:' .. by), id, id) end
move_of_caller(by, '', 'queued', id)
move_of_queue(queue, '', 'queued', id)
redis.call('ZADD', key('algorithm:' .. algorithm), id, id)
redis.call('ZADD', key('names'), 0, name .. '\0' .. id)
if due_score ~= '' then keep_due(id, due_score) end
tally('queued', 1, instances)
record(event, 'job ' .. id)
publish(id, 'queued', token)
return {'new', id}
