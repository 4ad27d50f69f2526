-- ARGV: store, token, id, the tags (JSON) and the note that the caller has seen, the new tags (JSON), the new note,
-- event
local _, token, id, seen_tags, seen_note, tags, note, event = unpack(ARGV)
local now = redis.call('HMGET', job_key(id), 'state', 'tags', 'note')
if not now[1] then return {'missing'} end
if (now[2] or '[]') ~= seen_tags or (now[3] or '') ~= seen_note then return {'stale'} end
drop_tags(id, seen_tags)
keep_tags(id, tags)
redis.call('HSET', job_key(id), 'tags', tags, 'note', note)
record(event)
publish(id, now[1], token)
return {'done', now[1]}
