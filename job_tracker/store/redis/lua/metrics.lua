-- ARGV: store, id, the names of the wanted series... (no names: all series)
local wanted = {unpack(ARGV, 3)}
if #wanted == 0 then
  wanted = redis.call('HKEYS', key('metrics:' .. ARGV[2]))
end
local series = {}
for _, name in ipairs(wanted) do
  local points = redis.call('LRANGE', key('metrics:' .. ARGV[2] .. ':' .. name), 0, -1)
  if #points > 0 then
    series[#series + 1] = {name, points}
  end
end
return {'metrics', series}
