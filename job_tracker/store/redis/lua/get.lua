-- ARGV: store, id
return {'job', job_of(ARGV[2])}
