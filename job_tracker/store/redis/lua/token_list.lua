-- ARGV: store, project ('' for all), limit, lower bound of the id as ZRANGEBYLEX wants it
local _, project, limit, above = unpack(ARGV)
local index = project == '' and key('tokens') or key('tokens:' .. project)
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYLEX', index, above, '+', 'LIMIT', 0, limit)) do
  found[#found + 1] = redis.call('HGETALL', token_key(id))
end
return {'tokens', found}
