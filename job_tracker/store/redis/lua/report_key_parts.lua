-- The keys of report tokens.
local function report_key(id) return key('report-key:' .. id) end
local function attempts_of(id) return key('report-key-attempts:' .. id) end
local function all_report_keys() return redis.call('ZRANGE', key('report-keys'), 0, -1) end
local function read_report_key(id)
  return {id, redis.call('HGETALL', report_key(id)), redis.call('HGETALL', attempts_of(id))}
end
-- Deletes the replaced keys that no live attempt may use, and returns their ids.
local function purge_report_keys()
  local ids, gone = all_report_keys(), {}
  for i = 1, #ids - 1 do
    local attempts = redis.call('HGETALL', attempts_of(ids[i]))
    local left = false
    for n = 1, #attempts, 2 do
      local now = redis.call('HMGET', job_key(attempts[n]), 'attempt', 'state')
      if now[1] == attempts[n + 1] and (now[2] == 'launching' or now[2] == 'running') then
        left = true
      else
        redis.call('HDEL', attempts_of(ids[i]), attempts[n])
      end
    end
    if not left then
      redis.call('ZREM', key('report-keys'), ids[i])
      redis.call('DEL', report_key(ids[i]))
      if ids[i] == '1' then redis.call('HDEL', KEYS[1], 'secret') end -- a schema before 5 had it there
      gone[#gone + 1] = ids[i]
    end
  end
  return gone
end
