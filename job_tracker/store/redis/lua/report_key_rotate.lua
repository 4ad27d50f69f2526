-- ARGV: store, event, the secret of the next key, now, the name of the caller, the most keys
local _, event, secret, at, by, most = unpack(ARGV)
purge_report_keys()
local ids = all_report_keys()
if #ids >= tonumber(most) then
  access_changed() -- keys may have been purged
  return {'full'}
end
local last = ids[#ids]
local next = string.format('%d', tonumber(last) + 1)
for _, state in ipairs({'launching', 'running'}) do
  for _, job in ipairs(redis.call('ZRANGE', key(state), 0, -1)) do
    redis.call('HSET', attempts_of(last), job, redis.call('HGET', job_key(job), 'attempt'))
  end
end
redis.call('HSET', report_key(last), 'replaced_at', at)
redis.call('HSET', report_key(next), 'secret', secret, 'made_at', at, 'made_by', by)
redis.call('ZADD', key('report-keys'), next, next)
purge_report_keys()
access_changed()
record(event, 'report key ' .. next)
return {'key', read_report_key(next)}
