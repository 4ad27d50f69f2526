-- Makes the sets of the queued jobs of each queue again, with their numbers.
local function make_queue_sets()
  for _, queue in ipairs(redis.call('HKEYS', key('queues'))) do redis.call('DEL', key('queue:' .. queue)) end
  redis.call('DEL', key('queues'))
  for _, id in ipairs(redis.call('ZRANGE', key('queued'), 0, -1)) do
    local queue = redis.call('HGET', job_key(id), 'queue')
    if not queue then
      queue = cjson.decode(redis.call('HGET', job_key(id), 'spec')).queue or 'default'
      redis.call('HSET', job_key(id), 'queue', queue)
    end
    move_of_queue(queue, '', 'queued', id)
  end
end
-- A replica of an earlier version, which keeps no such sets, may have run beside this one. It starts the
-- first jobs of a queue without removing them from the sets. So it suffices to check the first job of each
-- set, and the total.
local function are_queue_sets_whole()
  local total, found = 0, redis.call('HGETALL', key('queues'))
  for i = 1, #found, 2 do
    local first = redis.call('ZRANGE', key('queue:' .. found[i]), 0, 0)[1]
    if not first or redis.call('HGET', job_key(first), 'state') ~= 'queued' then return false end
    total = total + tonumber(found[i + 1])
  end
  return total == redis.call('ZCARD', key('queued'))
end
