-- ARGV: store, ids and times...
for i = 2, #ARGV, 2 do
  if redis.call('EXISTS', token_key(ARGV[i])) == 1 then
    redis.call('HSET', token_key(ARGV[i]), 'used_at', ARGV[i + 1])
  end
end
return {'done'}
