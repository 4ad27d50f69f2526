-- ARGV: store, limit, most bytes, upper bound of the id as ZREVRANGEBYSCORE wants it, algorithm ('' for any),
-- prefix of the name, states...
-- Returns the matching jobs, newest first, and the id below which the caller continues; '' at the end.
-- Returns 'cut' with the first jobs if more match than the limit or the bytes allow.
--
-- It walks the smallest index that contains all matches, at most SCAN ids in one call, since a server
-- does nothing else meanwhile. The caller repeats the call for the rest.
local SCAN = 1000
local _, limit, most, below, algorithm, prefix = unpack(ARGV)
limit, most = tonumber(limit), tonumber(most)
local wanted, drivers, size = {}, {}, 0
for i = 7, #ARGV do
  wanted[ARGV[i]] = true
  drivers[#drivers + 1] = key(ARGV[i])
  size = size + redis.call('ZCARD', key(ARGV[i]))
end
local function drive(index)
  local card = redis.call('ZCARD', index)
  if #drivers == 0 or card < size then drivers, size = {index}, card end
end
if algorithm ~= '' then drive(key('algorithm:' .. algorithm)) end
if #drivers == 0 then drive(key('jobs')) end

local function newest_first(a, b) return tonumber(a) > tonumber(b) end
local ids, rest = {}, ''
local first, last = '[' .. prefix, '[' .. prefix .. '\255'
local named = prefix ~= '' and redis.call('ZLEXCOUNT', key('names'), first, last)
if named and named * named <= size * limit then
  -- A rare name: reading all its jobs is cheaper than walking by id until enough are found.
  local bound = below == '+inf' and math.huge or tonumber(string.sub(below, 2))
  for _, member in ipairs(redis.call('ZRANGEBYLEX', key('names'), first, last)) do
    local id = string.match(member, '%z(%d+)$')
    if tonumber(id) < bound then ids[#ids + 1] = id end
  end
  table.sort(ids, newest_first)
else
  for _, index in ipairs(drivers) do
    for _, id in ipairs(redis.call('ZREVRANGEBYSCORE', index, below, '-inf', 'LIMIT', 0, SCAN)) do
      ids[#ids + 1] = id
    end
  end
  table.sort(ids, newest_first)
  if #ids >= SCAN then rest = ids[SCAN] end
end

local jobs, bytes = {}, 0
for i, id in ipairs(ids) do
  if rest ~= '' and i > SCAN then break end
  local job = redis.call('HMGET', job_key(id), 'state', 'algorithm', 'name')
  if job[1] and (next(wanted) == nil or wanted[job[1]]) and (algorithm == '' or job[2] == algorithm)
    and string.sub(job[3], 1, #prefix) == prefix then
    if #jobs == limit or bytes >= most then return {'cut', jobs, ''} end
    local found = job_of(id)
    for _, part in ipairs(found) do bytes = bytes + #part end
    jobs[#jobs + 1] = found
  end
end
return {'jobs', jobs, rest}
