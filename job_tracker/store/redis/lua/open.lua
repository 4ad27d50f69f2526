-- ARGV: schema, an id for the store if there is none yet, now, the secret of its first key of report tokens,
--       the id of the store that is expected here; '' if none is
-- A store that is not the expected one is left as it is.
local function make_first_key(secret)
  redis.call('HSET', key('report-key:1'), 'secret', secret)
  redis.call('ZADD', key('report-keys'), 1, 1)
end
local found = redis.call('HMGET', KEYS[1], 'schema', 'store')
local expected = ARGV[5]
if found[1] and found[2] then
  if expected ~= '' and expected ~= found[2] then return {'lost'} end
  -- Scripts and rows cope with what a store of an older schema lacks. An older service refuses the store.
  if tonumber(found[1]) < 4 then
    for _, state in ipairs(STATES) do
      redis.call('ZUNIONSTORE', project_key('default', state), 1, key(state))
    end
  end
  if tonumber(found[1]) < 5 then
    -- The secret stays where it was, too: a replica of the earlier version may read it there.
    redis.call('HSETNX', KEYS[1], 'secret', ARGV[4])
    make_first_key(redis.call('HGET', KEYS[1], 'secret'))
  end
  if tonumber(found[1]) < 7 then
    for _, id in ipairs(redis.call('ZRANGE', key('queued'), 0, -1)) do
      local _, by = owner_of(redis.call('HGET', job_key(id), 'by'))
      move_of_caller(by, '', 'queued', id)
    end
  end
  if tonumber(found[1]) < 8 then
    make_queue_sets()
  end
  if tonumber(found[1]) < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'schema', ARGV[1]) end
  return {'found', found[1], found[2]}
end
if expected ~= '' and redis.call('EXISTS', KEYS[1]) == 0 then return {'lost'} end
if redis.call('EXISTS', KEYS[1], key('last-id'), key('jobs'), key('tallies')) > 0 then return {'damaged'} end
make_first_key(ARGV[4])
redis.call('HSET', KEYS[1], 'schema', ARGV[1], 'store', ARGV[2], 'created_at', ARGV[3])
return {'made', ARGV[1], ARGV[2]}
