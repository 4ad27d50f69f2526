-- ARGV: store, moment, limit
local jobs = {}
local ids = redis.call('ZRANGEBYSCORE', key('finished'), '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do jobs[#jobs + 1] = job_of(id) end
return {'jobs', jobs}
