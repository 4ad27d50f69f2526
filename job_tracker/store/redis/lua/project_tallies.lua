-- ARGV: store, projects...
-- Returns the number of jobs in each of STATES, for each project.
local counts = {}
for i = 2, #ARGV do
  for _, state in ipairs(STATES) do counts[#counts + 1] = redis.call('ZCARD', project_key(ARGV[i], state)) end
end
return {'counts', STATES, counts}
