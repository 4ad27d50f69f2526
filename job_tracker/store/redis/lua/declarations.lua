-- ARGV: store
return {'declarations', declaration_changes(), redis.call('HGETALL', key('declarations'))}
