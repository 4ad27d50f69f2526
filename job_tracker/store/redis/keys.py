"""The keys in Redis. docs/redis.md explains them for operators, and the scripts in lua/ write them.

All keys begin with the same hash tag, `{prefix}`, so that scripts may use them together on a cluster.

    {p}:meta                  hash: the schema, the id of the store, the time of its creation, the number of
                              the last term, its token unless its leader resigned, the number of changes of
                              tokens, projects and report keys, the number of changes of declarations, and
                              the id of the last audit event
    {p}:leader                hash: the leader and its term; expires with the lease
    {p}:last-id               the last id that was given to a job, or skipped; never decreases
    {p}:job:ID                hash: one job
    {p}:jobs                  sorted set of the ids of all jobs, scored by id
    {p}:queued … :cancelled   sorted sets: the ids of the jobs in a state, scored by id
    {p}:project:NAME:STATE    sorted set: the ids of a project's jobs in a state, scored by id
    {p}:by:NAME               sorted set: the ids of the jobs that a caller submitted, scored by id
    {p}:queued-by:NAME        sorted set: the ids of the queued jobs that a caller submitted, scored by id
    {p}:queue:NAME            sorted set: the ids of the queued jobs of a queue, scored by id
    {p}:queues                hash: the name of a queue with queued jobs -> their number
    {p}:notes:KIND            hash: the notes of scheduling of a kind, KEY -> content
    {p}:finished              sorted set: the ids of ended jobs, scored by the time of their end (Unix time)
    {p}:due                   sorted set: the ids of jobs with a due time, scored by it (Unix time)
    {p}:tag:TAG               sorted set: the ids of the jobs with a tag, scored by id
    {p}:remains               sorted set, scored by id: the deleted jobs whose groups and logs are still to
                              be removed, each as id, algorithm, home and number of attempts, separated by
                              zero bytes
    {p}:algorithm:NAME        sorted set: the ids of an algorithm's jobs, scored by id
    {p}:names                 sorted set, all scores 0: NAME, a zero byte, ID
    {p}:metrics:ID            hash: a job's metrics, NAME -> the number of reported points, and the stride:
                              of the reported points, every stride-th one is kept
    {p}:metrics:ID:NAME       list: the points of a metric, each "ATTEMPT STEP AT VALUE"
    {p}:artifacts:ID          hash: a job's artifacts, NAME -> JSON
    {p}:requests              hash: request key -> id, for the project named default
    {p}:requests:PROJECT      hash: the same for another project
    {p}:token:ID              hash: one token of a caller
    {p}:tokens                sorted set, all scores 0: the ids of all tokens
    {p}:tokens:PROJECT        sorted set, all scores 0: the ids of a project's tokens
    {p}:token-ends            sorted set: the ids of tokens that end, scored by their end (Unix time)
    {p}:projects              hash: NAME -> the version, the members and the limits of a project, a line each
    {p}:declarations          hash: PROJECT/KIND/NAME -> the version of a declared algorithm, dataset or queue
                              on one line; on the next, JSON of its time of change, author and definition
    {p}:audit                 stream: the audit events; the first part of their ids is AuditEvent.id
    {p}:audit:project:NAME    stream: the ids of a project's audit events
    {p}:audit:by:NAME         stream: the ids of a caller's audit events
    {p}:report-keys           sorted set: the ids of the keys of report tokens, scored by id
    {p}:report-key:ID         hash: one of these keys
    {p}:report-key-attempts:ID
                              hash: id of a job -> its attempt, which was live when this key was replaced
    {p}:tallies               hash: STATE:jobs and STATE:instances
    {p}:changes               channel: "ID STATE TOKEN" for each change
    {p}:resignations          channel: the number of a term whose leader has resigned
"""

SCHEMA = 8
"""The newest layout that this version can use.

Layout 2 added attempts and reports; 3: specs with groups (specs.py); 4: projects; 5: several keys of report
tokens; 6: declared algorithms and datasets; 7: queued jobs by caller; 8: allocations, queues and notes of
scheduling.
"""


def meta(prefix: str) -> str:
    """Return the key {prefix}:meta. Scripts get only this key, and derive all other keys from it."""
    return f"{{{prefix}}}:meta"


def changes(prefix: str) -> str:
    """Return the channel on which changes of jobs are published."""
    return f"{{{prefix}}}:changes"


def resignations(prefix: str) -> str:
    """Return the channel on which resignations of leaders are published."""
    return f"{{{prefix}}}:resignations"
