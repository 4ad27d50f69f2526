-- ARGV: store
local jobs = {}
for _, state in ipairs({'launching', 'running'}) do
  for _, id in ipairs(redis.call('ZRANGE', key(state), 0, -1)) do jobs[#jobs + 1] = job_of(id) end
end
return {'jobs', jobs}
