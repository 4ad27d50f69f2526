-- ARGV: store, event, id, now
local _, event, id, at = unpack(ARGV)
if redis.call('EXISTS', token_key(id)) == 0 then return {'token', {}} end
if revoke(id, at) then record(event) end
access_changed()
return {'token', redis.call('HGETALL', token_key(id))}
