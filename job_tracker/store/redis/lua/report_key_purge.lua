-- ARGV: store
local gone = purge_report_keys()
if #gone > 0 then access_changed() end
return {'gone', gone}
