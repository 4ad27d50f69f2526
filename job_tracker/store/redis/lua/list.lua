-- ARGV: store, limit, most bytes, upper bound of the id as ZREVRANGEBYSCORE wants it, algorithm ('' for any),
-- prefix of the name, the submitter of the job ('' for any), number of projects ('' for any), four times in
-- the form of `comparable` ('' for any), tags (JSON), projects..., states...
-- The times: two lower bounds and two upper bounds of the time of submission. The first of each two is wider,
-- and limits the range of ids; the second is compared with the time of each job.
-- Returns the matching jobs, newest first, and the id below which the caller continues; '' at the end.
-- Returns 'cut' with the first jobs if more match than the limit or the bytes allow.
--
-- It walks the smallest index that contains all matches, at most SCAN ids of each of its parts in one call,
-- since a server does nothing else meanwhile. The caller repeats the call for the rest.
local SCAN, FEW = 1000, 20
local _, limit, most, below, algorithm, prefix, by, count, earliest, since, latest, till, tags = unpack(ARGV, 1, 13)
limit, most, tags = tonumber(limit), tonumber(most), cjson.decode(tags)
local first_state = 14 + (tonumber(count) or 0)
local states, wanted, projects = {}, {}, count ~= '' and {} or nil
for i = first_state, #ARGV do
  states[#states + 1] = ARGV[i]
  wanted[ARGV[i]] = true
end
local drivers, size = nil, 0
local function drive(indexes)
  local total = 0
  for _, index in ipairs(indexes) do total = total + redis.call('ZCARD', index) end
  if not drivers or total < size then drivers, size = indexes, total end
end
if #states > 0 then
  local indexes = {}
  for i, state in ipairs(states) do indexes[i] = key(state) end
  drive(indexes)
end
if projects then
  local indexes = {}
  for i = 14, first_state - 1 do
    projects[ARGV[i]] = true
    for _, state in ipairs(#states > 0 and states or STATES) do
      indexes[#indexes + 1] = project_key(ARGV[i], state)
    end
  end
  drive(indexes)
end
if by ~= '' then drive({key('by:' .. by)}) end
if algorithm ~= '' then drive({key('algorithm:' .. algorithm)}) end
for _, tag in ipairs(tags) do drive({key('tag:' .. tag)}) end
if not drivers then drive({key('jobs')}) end

-- A time with a fraction of 6 digits: all have the same form, so they compare as texts in every locale.
local function comparable(at)
  return string.sub(at, 1, 19) .. (string.match(at, '^[^.]*(%.%d+)') or '.000000')
end
-- The lowest id of the jobs submitted at this time or later, if times grow with ids; nil if there is none.
local function first_at(moment)
  local low, high = 0, redis.call('ZCARD', key('jobs'))
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = redis.call('HGET', job_key(redis.call('ZRANGE', key('jobs'), middle, middle)[1]), 'submitted_at')
    if at and comparable(at) < moment then low = middle + 1 else high = middle end
  end
  return redis.call('ZRANGE', key('jobs'), low, low)[1]
end
local above = '-inf'
if earliest ~= '' then
  above = first_at(earliest)
  if not above then return {'jobs', {}, ''} end
end
local ends = latest ~= '' and first_at(latest)
if ends and (below == '+inf' or tonumber(ends) < tonumber(string.sub(below, 2))) then below = '(' .. ends end

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
  -- If there are many parts, fewer ids of each are read. If a part may have more ids, they are below the last
  -- id that was read of it, so the list is complete only down to that id.
  local each = math.max(FEW, math.floor(SCAN / math.max(1, #drivers / #STATES)))
  local bound = 0
  for _, index in ipairs(drivers) do
    local found = redis.call('ZREVRANGEBYSCORE', index, below, above, 'LIMIT', 0, each)
    for _, id in ipairs(found) do ids[#ids + 1] = id end
    if #found == each then bound = math.max(bound, tonumber(found[each])) end
  end
  table.sort(ids, newest_first)
  if bound > 0 then rest = string.format('%d', bound) end
end

local function in_time(at)
  if since == '' and till == '' then return true end
  at = comparable(at)
  return (since == '' or at >= since) and (till == '' or at < till)
end
-- Tags have no quotes, so that each is found as it is in the JSON.
local function has_tags(found)
  for _, tag in ipairs(tags) do
    if not string.find(found or '', '"' .. tag .. '"', 1, true) then return false end
  end
  return true
end
local jobs, bytes = {}, 0
for _, id in ipairs(ids) do
  if rest ~= '' and tonumber(id) < tonumber(rest) then break end
  local job = redis.call('HMGET', job_key(id), 'state', 'algorithm', 'name', 'by', 'submitted_at', 'tags')
  local project, name = owner_of(job[4])
  if job[1] and (not projects or projects[project]) and (by == '' or name == by) and (next(wanted) == nil or wanted[job[1]]) and (algorithm == '' or job[2] == algorithm)
    and string.sub(job[3], 1, #prefix) == prefix and in_time(job[5]) and has_tags(job[6]) then
    if #jobs == limit or bytes >= most then return {'cut', jobs, ''} end
    local found = job_of(id)
    for _, part in ipairs(found) do bytes = bytes + #part end
    jobs[#jobs + 1] = found
  end
end
return {'jobs', jobs, rest}
