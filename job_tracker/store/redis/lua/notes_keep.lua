-- ARGV: store, term, kind, key, content ('' to remove the note), and so on
for i = 3, #ARGV, 3 do
  if ARGV[i + 2] == '' then
    redis.call('HDEL', key('notes:' .. ARGV[i]), ARGV[i + 1])
  else
    redis.call('HSET', key('notes:' .. ARGV[i]), ARGV[i + 1], ARGV[i + 2])
  end
end
return {'done'}
