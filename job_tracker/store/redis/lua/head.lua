-- ARGV: store, limit, the id after which to begin
local jobs = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('queued'), '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[2])) do
  jobs[#jobs + 1] = job_of(id)
end
return {'jobs', jobs}
