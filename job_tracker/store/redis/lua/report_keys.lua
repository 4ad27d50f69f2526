-- ARGV: store
local found = {}
for _, id in ipairs(all_report_keys()) do found[#found + 1] = read_report_key(id) end
return {'keys', found}
