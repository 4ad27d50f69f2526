-- ARGV: store, id, now
local _, id, at = unpack(ARGV)
if redis.call('EXISTS', token_key(id)) == 0 then return {'token', {}} end
revoke(id, at)
access_changed()
return {'token', redis.call('HGETALL', token_key(id))}
