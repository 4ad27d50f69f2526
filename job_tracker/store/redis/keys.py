"""The keys that an operator sees; docs/redis.md explains them, and the scripts in lua/ keep them.

All begin with one hash tag, `{prefix}`, so that they may be used together on a cluster.

    {p}:meta                  hash: schema, the id that tells this store from one made later, the number of
                              the last term, and its token unless its leader resigned
    {p}:leader                hash, gone when the lease is over: who leads, and in which term
    {p}:last-id               the id of the job that was submitted last; never goes back
    {p}:job:ID                hash: one job
    {p}:jobs                  sorted set of the ids of all jobs, scored by id
    {p}:queued … :cancelled   sorted sets: the ids of the jobs in a state, scored by id
    {p}:finished              sorted set: the ids of all that have ended, scored by when (Unix time)
    {p}:due                   sorted set: the ids of jobs with a deadline or in back-off, scored by it
    {p}:algorithm:NAME        sorted set: the ids of an algorithm's jobs, scored by id
    {p}:names                 sorted set, all scores 0: NAME, a zero byte, ID
    {p}:metrics:ID            hash: a job's metrics, NAME -> how many points came, and which are kept
    {p}:metrics:ID:NAME       list: one of them, "ATTEMPT STEP AT VALUE" for each point
    {p}:artifacts:ID          hash: what a job has made, NAME -> JSON
    {p}:requests              hash: request key -> id
    {p}:tallies               hash: STATE:jobs and STATE:instances
    {p}:changes               a channel: "ID STATE TOKEN" for each change
    {p}:resignations          a channel: the number of a term whose leader has resigned
"""

SCHEMA = 3
"""The newest layout that this version knows."""


def meta(prefix: str) -> str:
    """The key that every script is given; it derives the others from it."""
    return f"{{{prefix}}}:meta"


def changes(prefix: str) -> str:
    """The channel of changes."""
    return f"{{{prefix}}}:changes"


def resignations(prefix: str) -> str:
    """The channel of resignations."""
    return f"{{{prefix}}}:resignations"
