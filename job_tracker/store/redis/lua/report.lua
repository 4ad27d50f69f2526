-- ARGV: store, token, id, attempt, time of arrival (Unix time), progress ('' for none), most series, most points,
-- most artifacts, the number of points; name, step, at, value of each point; name, content of each artifact
local _, token, id, attempt, came, progress, most_series, most_points, most_artifacts, count = unpack(ARGV, 1, 10)
most_points = tonumber(most_points)
local now = redis.call('HMGET', job_key(id), 'attempt', 'state')
local ended = redis.call('ZSCORE', key('finished'), id)
if now[1] ~= attempt then return {'ignored'} end
if ended and tonumber(ended) < tonumber(came) then return {'ignored'} end
if not ended and now[2] ~= 'launching' and now[2] ~= 'running' then return {'ignored'} end
if progress ~= '' then redis.call('HSET', job_key(id), 'progress', progress) end

-- A series takes every stride-th point: "SEEN STRIDE" is the number of points seen, and the stride.
local index = key('metrics:' .. id)
local function keep(name, point)
  local seen, stride = string.match(redis.call('HGET', index, name) or '', '(%d+) (%d+)')
  if not seen then
    if redis.call('HLEN', index) >= tonumber(most_series) then return end
    seen, stride = 0, 1
  end
  seen, stride = tonumber(seen), tonumber(stride)
  local series = key('metrics:' .. id .. ':' .. name)
  if seen % stride == 0 and seen / stride >= most_points then
    local points = redis.call('LRANGE', series, 0, -1)
    redis.call('DEL', series)
    for i = 1, #points, 2 do redis.call('RPUSH', series, points[i]) end
    stride = stride * 2
  end
  if seen % stride == 0 then redis.call('RPUSH', series, point) end
  redis.call('HSET', index, name, string.format('%d %d', seen + 1, stride))
end
local last = 10 + 4 * tonumber(count)
for i = 11, last, 4 do
  keep(ARGV[i], attempt .. ' ' .. ARGV[i + 1] .. ' ' .. ARGV[i + 2] .. ' ' .. ARGV[i + 3])
end

local artifacts = key('artifacts:' .. id)
for i = last + 1, #ARGV, 2 do
  if redis.call('HEXISTS', artifacts, ARGV[i]) == 1 or redis.call('HLEN', artifacts) < tonumber(most_artifacts) then
    redis.call('HSET', artifacts, ARGV[i], ARGV[i + 1])
  end
end
publish(id, now[2], token)
return {'done', now[2]}
