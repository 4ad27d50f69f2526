-- ARGV: store
return {'version', declaration_changes()}
