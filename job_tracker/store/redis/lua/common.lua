-- KEYS[1]: {prefix}:meta. All other keys are derived from it, and share its hash tag, hence its slot.
local base = string.sub(KEYS[1], 1, -6)
local function key(name) return base .. ':' .. name end
local function job_key(id) return base .. ':job:' .. id end
local function job_of(id) return redis.call('HGETALL', job_key(id)) end
local function tally(state, jobs, instances)
  redis.call('HINCRBY', key('tallies'), state .. ':jobs', jobs)
  redis.call('HINCRBY', key('tallies'), state .. ':instances', instances)
end
local function keep_due(id, score)
  if score == '' then redis.call('ZREM', key('due'), id) else redis.call('ZADD', key('due'), score, id) end
end
local STATES = {'queued', 'launching', 'running', 'backoff', 'succeeded', 'failed', 'cancelled'}
local function project_key(project, state) return key('project:' .. project .. ':' .. state) end
-- The project and the submitter of a job, from its field `by`, PROJECT/NAME. Older jobs lack it.
local function owner_of(by)
  if not by then return 'default', '' end
  return string.match(by, '^([^/]*)/(.*)$')
end
-- Updates the set of a caller's queued jobs after a move from `before` to `after`.
local function move_of_caller(by, before, after, id)
  if by == '' then return end
  if before == 'queued' then redis.call('ZREM', key('queued-by:' .. by), id) end
  if after == 'queued' then redis.call('ZADD', key('queued-by:' .. by), id, id) end
end
-- Updates the set of a queue's queued jobs, and their number, after a move from `before` to `after`.
local function move_of_queue(queue, before, after, id)
  local change = 0
  if before == 'queued' then change = change - redis.call('ZREM', key('queue:' .. queue), id) end
  if after == 'queued' then change = change + redis.call('ZADD', key('queue:' .. queue), id, id) end
  if change ~= 0 and redis.call('HINCRBY', key('queues'), queue, change) == 0 then
    redis.call('HDEL', key('queues'), queue)
  end
end
local function requests_of(project)
  return project == 'default' and key('requests') or key('requests:' .. project)
end
local function keep_tags(id, tags)
  for _, tag in ipairs(cjson.decode(tags)) do redis.call('ZADD', key('tag:' .. tag), id, id) end
end
local function drop_tags(id, tags)
  for _, tag in ipairs(cjson.decode(tags)) do redis.call('ZREM', key('tag:' .. tag), id) end
end
local function publish(id, state, token)
  redis.call('PUBLISH', key('changes'), id .. ' ' .. state .. ' ' .. token)
end
