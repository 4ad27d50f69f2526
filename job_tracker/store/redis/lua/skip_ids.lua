-- ARGV: store, an id that may have been given, the number of ids to skip
local last = math.max(tonumber(redis.call('GET', key('last-id')) or '0'), tonumber(ARGV[2]))
local id = string.format('%d', last + tonumber(ARGV[3]))
redis.call('SET', key('last-id'), id)
return {'done', id}
