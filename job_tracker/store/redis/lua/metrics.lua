-- ARGV: store, id
local series = {}
for _, name in ipairs(redis.call('HKEYS', key('metrics:' .. ARGV[2]))) do
  series[#series + 1] = {name, redis.call('LRANGE', key('metrics:' .. ARGV[2] .. ':' .. name), 0, -1)}
end
return {'metrics', series}
