-- The number of changes of declarations.
local function declaration_changes() return redis.call('HGET', KEYS[1], 'declarations') or '0' end
local function declarations_changed() redis.call('HINCRBY', KEYS[1], 'declarations', 1) end
