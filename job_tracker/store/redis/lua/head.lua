-- ARGV: store, limit
local jobs = {}
for _, id in ipairs(redis.call('ZRANGE', key('queued'), 0, tonumber(ARGV[2]) - 1)) do jobs[#jobs + 1] = job_of(id) end
return {'jobs', jobs}
