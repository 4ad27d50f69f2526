-- The keys of tokens and projects, and the number of their changes.
local function token_key(id) return key('token:' .. id) end
local function access_changed() redis.call('HINCRBY', KEYS[1], 'access', 1) end
-- Revokes a token at the given time, unless it is revoked already. Returns whether this call revoked it.
local function revoke(id, at)
  local is_new = redis.call('HSETNX', token_key(id), 'revoked_at', at) == 1
  if is_new then
    local ends = redis.call('ZSCORE', key('token-ends'), id)
    if not ends or tonumber(at) < tonumber(ends) then redis.call('ZADD', key('token-ends'), at, id) end
  end
  return is_new
end
