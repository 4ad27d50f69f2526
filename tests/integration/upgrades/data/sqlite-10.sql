BEGIN TRANSACTION;
CREATE TABLE artifacts (
        job_id  INTEGER NOT NULL,
        name    TEXT    NOT NULL,
        content TEXT    NOT NULL,
        PRIMARY KEY (job_id, name)
    ) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
        id      INTEGER PRIMARY KEY,
        at      REAL NOT NULL,
        project TEXT NOT NULL,
        caller  TEXT NOT NULL,
        action  TEXT NOT NULL,
        target  TEXT NOT NULL,
        content TEXT NOT NULL
    ) STRICT;
CREATE TABLE declaration_changes (number INTEGER NOT NULL) STRICT;
INSERT INTO "declaration_changes" VALUES(0);
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
CREATE TABLE identity (id TEXT NOT NULL) STRICT;
INSERT INTO "identity" VALUES('1f206574');
CREATE TABLE job_tags (
        tag     TEXT    NOT NULL,
        project TEXT    NOT NULL,
        job_id  INTEGER NOT NULL,
        PRIMARY KEY (tag, project, job_id)
    ) STRICT, WITHOUT ROWID;
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
    , due_at REAL, program TEXT NOT NULL DEFAULT '', moves TEXT NOT NULL DEFAULT '[]', project TEXT NOT NULL DEFAULT 'default', submitted_by TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '[]', note TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO "jobs" VALUES(1,5,'succeeded','a-name','program',1,1,1795262400.0,1795262411.0,1795262421.0,'key-1',X'00000000','{"group":{"roles":{"master":1}},"algorithm":"program","dataset_id":"1","dataset_version":"v1","name":"a-name","model_name":"a-model","parameters":{"EPOCHS":"3"},"environment":{"EPOCHS":"3"},"data_uri":"/storage/versionedDatasets/1/v1","model_root":"/storage/models/a-model","checkpoint_root":"/storage/checkpoints"}','[{"rank":0,"phase":"stopped"}]','{"state":"succeeded","decided_at":"2026-11-21T12:00:20Z","has_model":true}',NULL,NULL,'image:1@sha256:0','[{"state":"queued","at":"2026-11-21T12:00:00Z","attempt":0},{"state":"launching","at":"2026-11-21T12:00:10Z","attempt":1},{"state":"running","at":"2026-11-21T12:00:11Z","attempt":1},{"state":"succeeded","at":"2026-11-21T12:00:21Z","attempt":1}]','default','','[]','');
INSERT INTO "jobs" VALUES(2,5,'failed','a-name','program',2,1,1795262401.0,1795262411.0,1795262423.0,'key-2',X'01010101','{"group":{"roles":{"master":1,"worker":1}},"algorithm":"program","dataset_id":"1","dataset_version":"v1","name":"a-name","model_name":"a-model","parameters":{},"environment":{},"data_uri":"/storage/versionedDatasets/1/v1","model_root":"/storage/models/a-model","checkpoint_root":"/storage/checkpoints"}','[{"rank":0,"phase":"stopped"},{"rank":1,"phase":"stopped"}]','{"state":"failed","decided_at":"2026-11-21T12:00:22Z","diagnosis":{"category":"node_lost","summary":"The node was lost.","resolution":"Submit it again.","detail":"node-1","retryable":true,"rank":1}}',NULL,NULL,'image:1@sha256:0','[{"state":"queued","at":"2026-11-21T12:00:01Z","attempt":0},{"state":"launching","at":"2026-11-21T12:00:10Z","attempt":1},{"state":"running","at":"2026-11-21T12:00:11Z","attempt":1},{"state":"failed","at":"2026-11-21T12:00:23Z","attempt":1,"diagnosis":{"category":"node_lost","summary":"The node was lost.","resolution":"Submit it again.","detail":"node-1","retryable":true,"rank":1}}]','default','','[]','');
INSERT INTO "jobs" VALUES(3,3,'running','a-name','program',3,1,1795262402.0,1795262413.0,NULL,'key-3',X'02020202','{"group":{"roles":{"master":1,"worker":2}},"algorithm":"program","dataset_id":"1","dataset_version":"v1","name":"a-name","model_name":"a-model","parameters":{},"environment":{},"data_uri":"/storage/versionedDatasets/1/v1","model_root":"/storage/models/a-model","checkpoint_root":"/storage/checkpoints"}','[{"rank":0,"phase":"running"},{"rank":1,"phase":"running"},{"rank":2,"phase":"running"}]',NULL,'{"step":5,"total_steps":10,"metrics":{"loss":0.5},"reported_at":"2026-11-21T12:00:14Z"}',NULL,'image:1@sha256:0','[{"state":"queued","at":"2026-11-21T12:00:02Z","attempt":0},{"state":"launching","at":"2026-11-21T12:00:12Z","attempt":1},{"state":"running","at":"2026-11-21T12:00:13Z","attempt":1}]','default','','[]','');
INSERT INTO "jobs" VALUES(4,2,'launching','a-name','program',2,1,1795262403.0,NULL,NULL,'key-4',X'03030303','{"group":{"roles":{"master":1,"worker":1}},"algorithm":"program","dataset_id":"1","dataset_version":"v1","name":"a-name","model_name":"a-model","parameters":{},"environment":{},"data_uri":"/storage/versionedDatasets/1/v1","model_root":"/storage/models/a-model","checkpoint_root":"/storage/checkpoints"}','[]',NULL,NULL,NULL,'','[{"state":"queued","at":"2026-11-21T12:00:03Z","attempt":0},{"state":"launching","at":"2026-11-21T12:00:14Z","attempt":1}]','default','','[]','');
INSERT INTO "jobs" VALUES(5,1,'queued','waiting','program',1,0,1795262404.0,NULL,NULL,'key-5',X'04040404','{"group":{"roles":{"master":1}},"algorithm":"program","dataset_id":"1","dataset_version":"v1","name":"waiting","model_name":"a-model","parameters":{},"environment":{},"data_uri":"/storage/versionedDatasets/1/v1","model_root":"/storage/models/a-model","checkpoint_root":"/storage/checkpoints"}','[]',NULL,NULL,NULL,'','[{"state":"queued","at":"2026-11-21T12:00:04Z","attempt":0}]','default','','[]','');
INSERT INTO "jobs" VALUES(6,2,'cancelled','a-name','program',1,0,1795262405.0,NULL,1795262430.0,'key-6',X'05050505','{"group":{"roles":{"master":1}},"algorithm":"program","dataset_id":"1","dataset_version":"v1","name":"a-name","model_name":"a-model","parameters":{},"environment":{},"data_uri":"/storage/versionedDatasets/1/v1","model_root":"/storage/models/a-model","checkpoint_root":"/storage/checkpoints"}','[]','{"state":"cancelled","decided_at":"2026-11-21T12:00:30Z","at_once":true}',NULL,NULL,'','[{"state":"queued","at":"2026-11-21T12:00:05Z","attempt":0},{"state":"cancelled","at":"2026-11-21T12:00:30Z","attempt":0}]','default','','[]','');
CREATE TABLE metric_points (
        series  INTEGER NOT NULL REFERENCES metric_series (id),
        number  INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        step    INTEGER NOT NULL,
        at      REAL    NOT NULL,
        value   REAL    NOT NULL,
        PRIMARY KEY (series, number)
    ) STRICT, WITHOUT ROWID;
CREATE TABLE metric_series (
        id      INTEGER PRIMARY KEY,
        job_id  INTEGER NOT NULL,
        name    TEXT    NOT NULL,
        seen    INTEGER NOT NULL,
        stride  INTEGER NOT NULL,
        UNIQUE (job_id, name)
    ) STRICT;
CREATE TABLE project_tallies (
        project TEXT    NOT NULL,
        state   TEXT    NOT NULL,
        jobs    INTEGER NOT NULL,
        PRIMARY KEY (project, state)
    ) STRICT, WITHOUT ROWID;
INSERT INTO "project_tallies" VALUES('default','cancelled',1);
INSERT INTO "project_tallies" VALUES('default','failed',1);
INSERT INTO "project_tallies" VALUES('default','launching',1);
INSERT INTO "project_tallies" VALUES('default','queued',1);
INSERT INTO "project_tallies" VALUES('default','running',1);
INSERT INTO "project_tallies" VALUES('default','succeeded',1);
CREATE TABLE projects (
        name    TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        members TEXT NOT NULL,
        limits  TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO "projects" VALUES('vision',1,'{"alice":3}','{}');
CREATE TABLE queue_blocks (block INTEGER PRIMARY KEY, jobs INTEGER NOT NULL) STRICT;
INSERT INTO "queue_blocks" VALUES(0,1);
CREATE TABLE queued_of_callers (
        caller TEXT    PRIMARY KEY,
        jobs   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
CREATE TABLE remains (
        job_id    INTEGER PRIMARY KEY,
        algorithm TEXT    NOT NULL,
        home      TEXT    NOT NULL,
        attempts  INTEGER NOT NULL
    ) STRICT;
CREATE TABLE report_key_attempts (
        key     INTEGER NOT NULL,
        job_id  INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        PRIMARY KEY (key, job_id)
    ) STRICT, WITHOUT ROWID;
CREATE TABLE report_keys (
        id          INTEGER PRIMARY KEY,
        secret      BLOB NOT NULL,
        made_at     REAL,
        made_by     TEXT NOT NULL DEFAULT '',
        replaced_at REAL,
        removed_at  REAL
    ) STRICT;
INSERT INTO "report_keys" VALUES(1,X'F9E0633ED3E1F14BA2BDABA082342F1D5537D5BFFBC8264BFD73149684F7A329',NULL,'',NULL,NULL);
CREATE TABLE tallies (
        state     TEXT PRIMARY KEY,
        jobs      INTEGER NOT NULL,
        instances INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO "tallies" VALUES('cancelled',1,1);
INSERT INTO "tallies" VALUES('failed',1,2);
INSERT INTO "tallies" VALUES('launching',1,2);
INSERT INTO "tallies" VALUES('queued',1,1);
INSERT INTO "tallies" VALUES('running',1,3);
INSERT INTO "tallies" VALUES('succeeded',1,1);
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
INSERT INTO "tokens" VALUES('aaaaaaaa',X'0000000000000000000000000000000000000000000000000000000000000000','ci','vision',1,1763726400.0,'operator',NULL,NULL,NULL);
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_algorithm ON jobs (algorithm, id);
CREATE INDEX jobs_by_name ON jobs (name, id);
CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_by_due ON jobs (due_at) WHERE due_at IS NOT NULL;
CREATE TRIGGER jobs_leave_reports AFTER DELETE ON jobs BEGIN
        DELETE FROM metric_points WHERE series IN (SELECT id FROM metric_series WHERE job_id = old.id);
        DELETE FROM metric_series WHERE job_id = old.id;
        DELETE FROM artifacts WHERE job_id = old.id;
    END;
CREATE UNIQUE INDEX jobs_by_request_key ON jobs (project, request_key) WHERE request_key IS NOT NULL;
CREATE INDEX jobs_by_project ON jobs (project, state, id);
CREATE INDEX jobs_by_submitter ON jobs (submitted_by, id, project) WHERE submitted_by <> '';
CREATE TRIGGER jobs_enter AFTER INSERT ON jobs BEGIN
        INSERT INTO tallies VALUES (new.state, 1, new.instances)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1, instances = instances + excluded.instances;
        INSERT INTO project_tallies VALUES (new.project, new.state, 1)
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
        INSERT INTO queue_blocks SELECT new.id >> 8, 1 WHERE new.state = 'queued'
            ON CONFLICT DO UPDATE SET jobs = jobs + 1;
    END;
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
CREATE TRIGGER jobs_leave AFTER DELETE ON jobs BEGIN
        UPDATE tallies SET jobs = jobs - 1, instances = instances - old.instances WHERE state = old.state;
        UPDATE project_tallies SET jobs = jobs - 1 WHERE project = old.project AND state = old.state;
    END;
CREATE INDEX tokens_by_project ON tokens (project, id);
CREATE INDEX tokens_by_end ON tokens (ends_at) WHERE ends_at IS NOT NULL;
CREATE TRIGGER jobs_enter_tags AFTER INSERT ON jobs WHEN new.tags <> '[]' BEGIN
        INSERT INTO job_tags SELECT value, new.project, new.id FROM json_each(new.tags);
    END;
CREATE TRIGGER jobs_change_tags AFTER UPDATE OF tags ON jobs WHEN old.tags <> new.tags BEGIN
        DELETE FROM job_tags WHERE (tag, project, job_id) IN
            (SELECT value, old.project, old.id FROM json_each(old.tags));
        INSERT INTO job_tags SELECT value, new.project, new.id FROM json_each(new.tags);
    END;
CREATE TRIGGER jobs_leave_rest AFTER DELETE ON jobs BEGIN
        DELETE FROM job_tags WHERE (tag, project, job_id) IN
            (SELECT value, old.project, old.id FROM json_each(old.tags));
        INSERT INTO remains
            VALUES (old.id, old.algorithm, coalesce(json_extract(old.spec, '$.home'), ''), old.attempt);
    END;
CREATE INDEX audit_by_project ON audit (project);
CREATE INDEX audit_by_caller ON audit (caller, id, project);
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',6);
COMMIT;
PRAGMA application_id = 1414680135;
PRAGMA user_version = 10;
