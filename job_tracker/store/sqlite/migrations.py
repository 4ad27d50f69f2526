"""The tables of the job store, as migrations from each earlier version."""

# Entry i migrates a file from version i to version i + 1. Released entries must never change.
#
# Triggers keep other tables consistent with `jobs`. `tallies`, `project_tallies` and `queued_of_callers` have
# numbers of jobs, `job_tags` has the tags, and `remains` has the deleted jobs whose groups and logs are still
# to be removed. `queue_blocks` has the number of queued jobs for each queue and each block of 256 ids. This
# table makes it cheap to find a job's position in its queue: a query reads one range of blocks, and one range
# of jobs within a block.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE jobs (
        id              INTEGER PRIMARY KEY AUTOINCREMENT,
        version         INTEGER NOT NULL,
        state           TEXT    NOT NULL,
        name            TEXT    NOT NULL,
        algorithm       TEXT    NOT NULL,
        instances       INTEGER NOT NULL,
        attempt         INTEGER NOT NULL,
        submitted_at    REAL    NOT NULL,
        started_at      REAL,
        finished_at     REAL,
        request_key     TEXT,
        request_digest  BLOB,
        spec            TEXT    NOT NULL,
        ranks           TEXT    NOT NULL,
        ending          TEXT,
        progress        TEXT
    ) STRICT;
    CREATE UNIQUE INDEX jobs_by_request_key ON jobs (request_key) WHERE request_key IS NOT NULL;
    CREATE INDEX jobs_by_state ON jobs (state, id);
    CREATE INDEX jobs_by_algorithm ON jobs (algorithm, id);
    CREATE INDEX jobs_by_name ON jobs (name, id);
    CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE finished_at IS NOT NULL;

    CREATE TABLE tallies (
        state     TEXT PRIMARY KEY,
        jobs      INTEGER NOT NULL,
        instances INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE queue_blocks (block INTEGER PRIMARY KEY, jobs INTEGER NOT NULL) STRICT;

    CREATE TRIGGER jobs_enter AFTER INSERT ON jobs BEGIN
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        INSERT INTO queue_blocks SELECT new.id >> 8, 1 WHERE new.state = 'queued'
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
    CREATE TRIGGER jobs_move AFTER UPDATE OF state ON jobs WHEN old.state <> new.state BEGIN
        UPDATE tallies SET jobs = jobs - 1, instances = instances - old.instances WHERE state = old.state;
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        UPDATE queue_blocks SET jobs = jobs - 1 WHERE block = old.id >> 8 AND old.state = 'queued';
        DELETE FROM queue_blocks WHERE block = old.id >> 8 AND jobs = 0;
    END;
    CREATE TRIGGER jobs_leave AFTER DELETE ON jobs BEGIN
        UPDATE tallies SET jobs = jobs - 1, instances = instances - old.instances WHERE state = old.state;
    END;
    """,
    """
    ALTER TABLE jobs ADD COLUMN due_at REAL;
    ALTER TABLE jobs ADD COLUMN program TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN moves TEXT NOT NULL DEFAULT '[]';
    CREATE INDEX jobs_by_due ON jobs (due_at) WHERE due_at IS NOT NULL;

    CREATE TABLE secrets (value BLOB NOT NULL) STRICT;
    INSERT INTO secrets VALUES (randomblob(32));

    -- A series takes every stride-th point; its points are numbered as they came, the untaken too.
    CREATE TABLE metric_series (
        id      INTEGER PRIMARY KEY,
        job_id  INTEGER NOT NULL,
        name    TEXT    NOT NULL,
        seen    INTEGER NOT NULL,
        stride  INTEGER NOT NULL,
        UNIQUE (job_id, name)
    ) STRICT;
    CREATE TABLE metric_points (
        series  INTEGER NOT NULL REFERENCES metric_series (id),
        number  INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        step    INTEGER NOT NULL,
        at      REAL    NOT NULL,
        value   REAL    NOT NULL,
        PRIMARY KEY (series, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE artifacts (
        job_id  INTEGER NOT NULL,
        name    TEXT    NOT NULL,
        content TEXT    NOT NULL,
        PRIMARY KEY (job_id, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER jobs_leave_reports AFTER DELETE ON jobs BEGIN
        DELETE FROM metric_points WHERE series IN (SELECT id FROM metric_series WHERE job_id = old.id);
        DELETE FROM metric_series WHERE job_id = old.id;
        DELETE FROM artifacts WHERE job_id = old.id;
    END;

    -- A job may come back into the queue.
    DROP TRIGGER jobs_move;
    CREATE TRIGGER jobs_move AFTER UPDATE OF state ON jobs WHEN old.state <> new.state BEGIN
        UPDATE tallies SET jobs = jobs - 1, instances = instances - old.instances WHERE state = old.state;
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        UPDATE queue_blocks SET jobs = jobs - 1 WHERE block = old.id >> 8 AND old.state = 'queued';
        DELETE FROM queue_blocks WHERE block = old.id >> 8 AND jobs = 0;
        INSERT INTO queue_blocks SELECT new.id >> 8, 1 WHERE new.state = 'queued'
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
    """,
    """
    -- Tells the folders of its jobs from those of other stores, which begin at job 1 as well.
    CREATE TABLE identity (id TEXT NOT NULL) STRICT;
    INSERT INTO identity VALUES (lower(hex(randomblob(4))));
    """,
    """
    -- New specs have a group, which earlier versions cannot read: they are to refuse the file.
    """,
    """
    ALTER TABLE jobs ADD COLUMN project TEXT NOT NULL DEFAULT 'default';
    ALTER TABLE jobs ADD COLUMN submitted_by TEXT NOT NULL DEFAULT '';
    DROP INDEX jobs_by_request_key;
    CREATE UNIQUE INDEX jobs_by_request_key ON jobs (project, request_key) WHERE request_key IS NOT NULL;
    CREATE INDEX jobs_by_project ON jobs (project, state, id);
    -- With the project, so that a list by project and submitter reads no other rows.
    CREATE INDEX jobs_by_submitter ON jobs (submitted_by, id, project) WHERE submitted_by <> '';

    CREATE TABLE project_tallies (
        project TEXT    NOT NULL,
        state   TEXT    NOT NULL,
        jobs    INTEGER NOT NULL,
        PRIMARY KEY (project, state)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO project_tallies SELECT 'default', state, jobs FROM tallies;

    DROP TRIGGER jobs_enter;
    CREATE TRIGGER jobs_enter AFTER INSERT ON jobs BEGIN
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        INSERT INTO project_tallies VALUES (new.project, new.state, 1)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
        INSERT INTO queue_blocks SELECT new.id >> 8, 1 WHERE new.state = 'queued'
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
    DROP TRIGGER jobs_move;
    CREATE TRIGGER jobs_move AFTER UPDATE OF state ON jobs WHEN old.state <> new.state BEGIN
        UPDATE tallies SET jobs = jobs - 1, instances = instances - old.instances WHERE state = old.state;
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        UPDATE project_tallies SET jobs = jobs - 1 WHERE project = old.project AND state = old.state;
        INSERT INTO project_tallies VALUES (new.project, new.state, 1)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
        UPDATE queue_blocks SET jobs = jobs - 1 WHERE block = old.id >> 8 AND old.state = 'queued';
        DELETE FROM queue_blocks WHERE block = old.id >> 8 AND jobs = 0;
        INSERT INTO queue_blocks SELECT new.id >> 8, 1 WHERE new.state = 'queued'
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
    DROP TRIGGER jobs_leave;
    CREATE TRIGGER jobs_leave AFTER DELETE ON jobs BEGIN
        UPDATE tallies SET jobs = jobs - 1, instances = instances - old.instances WHERE state = old.state;
        UPDATE project_tallies SET jobs = jobs - 1 WHERE project = old.project AND state = old.state;
    END;

    CREATE TABLE tokens (
        id          TEXT PRIMARY KEY,
        digest      BLOB NOT NULL,
        name        TEXT NOT NULL,
        project     TEXT NOT NULL,
        role        INTEGER,
        created_at  REAL NOT NULL,
        created_by  TEXT NOT NULL,
        expires_at  REAL,
        revoked_at  REAL,
        used_at     REAL,
        ends_at     REAL AS (min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)))
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX tokens_by_project ON tokens (project, id);
    CREATE INDEX tokens_by_end ON tokens (ends_at) WHERE ends_at IS NOT NULL;

    CREATE TABLE projects (
        name    TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        members TEXT NOT NULL,
        limits  TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
    """
    -- The key with the highest id is the current one.
    CREATE TABLE report_keys (
        id          INTEGER PRIMARY KEY,
        secret      BLOB NOT NULL,
        made_at     REAL,
        made_by     TEXT NOT NULL DEFAULT '',
        replaced_at REAL,
        removed_at  REAL
    ) STRICT;
    INSERT INTO report_keys (id, secret) SELECT 1, value FROM secrets;
    DROP TABLE secrets;
    -- The attempts that were live when a key was replaced.
    CREATE TABLE report_key_attempts (
        key     INTEGER NOT NULL,
        job_id  INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        PRIMARY KEY (key, job_id)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE jobs ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE jobs ADD COLUMN note TEXT NOT NULL DEFAULT '';
    CREATE TABLE job_tags (
        tag     TEXT    NOT NULL,
        project TEXT    NOT NULL,
        job_id  INTEGER NOT NULL,
        PRIMARY KEY (tag, project, job_id)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER jobs_enter_tags AFTER INSERT ON jobs WHEN new.tags <> '[]' BEGIN
        INSERT INTO job_tags SELECT value, new.project, new.id FROM json_each(new.tags);
    END;
    CREATE TRIGGER jobs_change_tags AFTER UPDATE OF tags ON jobs WHEN old.tags <> new.tags BEGIN
        DELETE FROM job_tags WHERE (tag, project, job_id) IN
            (SELECT value, old.project, old.id FROM json_each(old.tags));
        INSERT INTO job_tags SELECT value, new.project, new.id FROM json_each(new.tags);
    END;

    -- Deleted jobs whose groups and logs are still to be removed.
    CREATE TABLE remains (
        job_id    INTEGER PRIMARY KEY,
        algorithm TEXT    NOT NULL,
        home      TEXT    NOT NULL,
        attempts  INTEGER NOT NULL
    ) STRICT;
    CREATE TRIGGER jobs_leave_rest AFTER DELETE ON jobs BEGIN
        DELETE FROM job_tags WHERE (tag, project, job_id) IN
            (SELECT value, old.project, old.id FROM json_each(old.tags));
        INSERT INTO remains
            VALUES (old.id, old.algorithm, coalesce(json_extract(old.spec, '$.home'), ''), old.attempt);
    END;
    """,
    """
    CREATE TABLE audit (
        id      INTEGER PRIMARY KEY,
        at      REAL NOT NULL,
        project TEXT NOT NULL,
        caller  TEXT NOT NULL,
        action  TEXT NOT NULL,
        target  TEXT NOT NULL,
        content TEXT NOT NULL
    ) STRICT;
    CREATE INDEX audit_by_project ON audit (project);
    -- With the project, so that a list by project and caller reads no other rows.
    CREATE INDEX audit_by_caller ON audit (caller, id, project);
    """,
    """
    CREATE TABLE declarations (
        kind       TEXT    NOT NULL,
        project    TEXT    NOT NULL,
        name       TEXT    NOT NULL,
        version    INTEGER NOT NULL,
        definition TEXT    NOT NULL,
        changed_at REAL    NOT NULL,
        changed_by TEXT    NOT NULL,
        PRIMARY KEY (kind, project, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE declaration_changes (number INTEGER NOT NULL) STRICT;
    INSERT INTO declaration_changes VALUES (0);
    """,
    """
    -- The number of queued jobs of each caller that has some.
    CREATE TABLE queued_of_callers (
        caller TEXT    PRIMARY KEY,
        jobs   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO queued_of_callers SELECT submitted_by, count(*) FROM jobs
        WHERE state = 'queued' AND submitted_by <> '' GROUP BY submitted_by;
    CREATE TRIGGER jobs_enter_queue AFTER INSERT ON jobs
        WHEN new.state = 'queued' AND new.submitted_by <> '' BEGIN
        INSERT INTO queued_of_callers VALUES (new.submitted_by, 1) ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
    CREATE TRIGGER jobs_enter_queue_again AFTER UPDATE OF state ON jobs
        WHEN new.state = 'queued' AND old.state <> 'queued' AND new.submitted_by <> '' BEGIN
        INSERT INTO queued_of_callers VALUES (new.submitted_by, 1) ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
    CREATE TRIGGER jobs_leave_queue AFTER UPDATE OF state ON jobs
        WHEN old.state = 'queued' AND new.state <> 'queued' AND old.submitted_by <> '' BEGIN
        UPDATE queued_of_callers SET jobs = jobs - 1 WHERE caller = old.submitted_by;
        DELETE FROM queued_of_callers WHERE caller = old.submitted_by AND jobs = 0;
    END;
    """,
    """
    ALTER TABLE jobs ADD COLUMN allocation TEXT;
    ALTER TABLE jobs ADD COLUMN queue TEXT NOT NULL DEFAULT 'default';
    UPDATE jobs SET queue = json_extract(spec, '$.queue')
        WHERE finished_at IS NULL AND json_extract(spec, '$.queue') IS NOT NULL;
    CREATE INDEX queued_jobs ON jobs (queue, id) WHERE state = 'queued';

    DROP TABLE queue_blocks;
    CREATE TABLE queue_blocks (
        queue TEXT    NOT NULL,
        block INTEGER NOT NULL,
        jobs  INTEGER NOT NULL,
        PRIMARY KEY (queue, block)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO queue_blocks SELECT queue, id >> 8, count(*) FROM jobs
        WHERE state = 'queued' GROUP BY queue, id >> 8;
    DROP TRIGGER jobs_enter;
    CREATE TRIGGER jobs_enter AFTER INSERT ON jobs BEGIN
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        INSERT INTO project_tallies VALUES (new.project, new.state, 1)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
        INSERT INTO queue_blocks SELECT new.queue, new.id >> 8, 1 WHERE new.state = 'queued'
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
    DROP TRIGGER jobs_move;
    CREATE TRIGGER jobs_move AFTER UPDATE OF state ON jobs WHEN old.state <> new.state BEGIN
        UPDATE tallies SET jobs = jobs - 1, instances = instances - old.instances WHERE state = old.state;
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        UPDATE project_tallies SET jobs = jobs - 1 WHERE project = old.project AND state = old.state;
        INSERT INTO project_tallies VALUES (new.project, new.state, 1)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
        UPDATE queue_blocks SET jobs = jobs - 1
            WHERE queue = old.queue AND block = old.id >> 8 AND old.state = 'queued';
        DELETE FROM queue_blocks WHERE queue = old.queue AND block = old.id >> 8 AND jobs = 0;
        INSERT INTO queue_blocks SELECT new.queue, new.id >> 8, 1 WHERE new.state = 'queued'
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;

    CREATE TABLE scheduling_notes (
        kind    TEXT NOT NULL,
        key     TEXT NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (kind, key)
    ) STRICT, WITHOUT ROWID;
    """,
)
