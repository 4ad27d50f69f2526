-- ARGV: store, an id that may have been given, how many ids to leave out
local last = math.max(tonumber(redis.call('GET', key('last-id')) or '0'), tonumber(ARGV[2]))
local id = string.format('%d', last + tonumber(ARGV[3]))
redis.call('SET', key('last-id'), id)
return {'done', id}
