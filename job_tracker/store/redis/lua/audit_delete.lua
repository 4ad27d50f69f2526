-- ARGV: store, term, highest id, limit
local found = redis.call('XRANGE', key('audit'), '-', ARGV[3], 'COUNT', ARGV[4])
for _, entry in ipairs(found) do
  local id, fields = entry[1], entry[2]
  for _, name in ipairs({'audit:project:' .. fields[2], 'audit:by:' .. fields[4]}) do
    if redis.call('XDEL', key(name), id) == 1 and redis.call('XLEN', key(name)) == 0 then
      redis.call('DEL', key(name))
    end
  end
  redis.call('XDEL', key('audit'), id)
end
return {'done', #found}
