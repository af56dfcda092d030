-- Ratchet's tables, all in one schema. Times are milliseconds since 1970, durations are
-- milliseconds unless the name says otherwise. The checks keep out what no reader could read.

-- The distinct (queue, kind, capability) triples, so that a job carries one small number for them.
-- Rows are never changed or deleted: every process caches them. '' is no capability. An id is one
-- more than the largest, so ids are committed in their order and the largest says what is new.
CREATE TABLE {schema}.routes (
    id         integer PRIMARY KEY,
    queue      text NOT NULL,
    kind       text NOT NULL,
    capability text NOT NULL DEFAULT '',
    UNIQUE (queue, kind, capability)
);

-- What changes while a job lives, and nothing else: claims and settlements rewrite this row.
-- state: 0 pending, 1 blocked, 2 paused, 3 running, 4 succeeded, 5 failed, 6 cancelled.
-- flags: 1 the job has a unique key, 2 it has a timeout or a stall timeout, 4 it has a lane.
-- claimed_at, last_report, node and cancel_requested are those of the present claim if the job is
-- running, and otherwise left over from the last one. ran_for_us is of the claim that succeeded.
CREATE TABLE {schema}.jobs (
    id               uuid NOT NULL,
    run_at           bigint NOT NULL,
    created_at       bigint NOT NULL,
    claim_seq        bigint NOT NULL DEFAULT 0,
    settled_seq      bigint NOT NULL DEFAULT 0,
    route            integer NOT NULL,
    attempts         integer NOT NULL DEFAULT 0,
    crash_count      integer NOT NULL DEFAULT 0,
    state            smallint NOT NULL CHECK (state BETWEEN 0 AND 6),
    priority         smallint NOT NULL CHECK (priority BETWEEN 0 AND 4),
    flags            smallint NOT NULL DEFAULT 0,
    cancel_requested boolean NOT NULL DEFAULT false,
    claimed_at       bigint,
    finished_at      bigint,
    last_report      bigint,
    ran_for_us       bigint,
    node             uuid
);

-- What is fixed at the enqueue; the id is the job's. Appended once, then only read.
-- retry: none means exactly 10 attempts, exponential from 1 s to 5 min, 25 % jitter.
CREATE TABLE {schema}.job_data (
    id              uuid NOT NULL,
    timeout         bigint,
    stall_timeout   bigint,
    payload         text NOT NULL,
    retry           text,
    unique_key      text,
    idempotency_key text,
    lane            text,
    traceparent     text,
    tracestate      text
);

-- What bodies leave behind; only jobs that left something have a row.
CREATE TABLE {schema}.job_notes (
    job        uuid NOT NULL,
    percent    smallint,
    message    text,
    checkpoint text,
    result     text,
    last_error text
);

-- The ended claims of each job but the one that succeeded: nothing comes after it, so the row in
-- jobs remembers it.
-- outcome: 1 retried, 2 failed, 3 snoozed, 4 released, 5 cancelled, 6 lost.
CREATE TABLE {schema}.attempts (
    job        uuid NOT NULL,
    seq        bigint NOT NULL,
    claimed_at bigint NOT NULL,
    ended_at   bigint NOT NULL,
    ran_for_us bigint,
    node       uuid,
    outcome    smallint NOT NULL,
    error      text
);

-- Who has a unique key: an unfinished job.
CREATE TABLE {schema}.unique_keys (
    key text COLLATE "C" NOT NULL,
    job uuid NOT NULL
);

-- Who first had an idempotency key; rows outlive their jobs.
CREATE TABLE {schema}.idempotency_keys (
    key         text COLLATE "C" NOT NULL,
    job         uuid NOT NULL,
    reserved_at bigint NOT NULL
);

-- The lanes that have unfinished jobs, and the last sequence each gave. An emptied lane has no row.
-- Whoever changes which jobs are unfinished in a lane locks its row first.
CREATE TABLE {schema}.lanes (
    last_seq bigint NOT NULL,
    queue    text COLLATE "C" NOT NULL,
    lane     text COLLATE "C" NOT NULL
);

-- The unfinished jobs of lanes: that with the lowest sequence is the head, the others are blocked.
CREATE TABLE {schema}.lane_jobs (
    job   uuid NOT NULL,
    seq   bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    lane  text COLLATE "C" NOT NULL
);

CREATE TABLE {schema}.paused_queues (
    queue     text COLLATE "C" NOT NULL PRIMARY KEY,
    paused_at bigint NOT NULL
);

-- status: 0 joining, 1 active, 2 draining, 3 left, 4 dead.
CREATE TABLE {schema}.nodes (
    node       uuid NOT NULL PRIMARY KEY,
    label      text NOT NULL,
    status     smallint NOT NULL CHECK (status BETWEEN 0 AND 4),
    running    bigint NOT NULL,
    capacity   bigint NOT NULL,
    interval   bigint NOT NULL,
    started_at bigint NOT NULL,
    last_seen  bigint NOT NULL,
    connections  bigint,
    cpu_percent  bigint,
    memory_bytes bigint,
    roles        text NOT NULL,
    capabilities text NOT NULL
);

-- Version tokens. Rows are never deleted, since a version must grow for ever.
CREATE TABLE {schema}.versions (
    namespace text COLLATE "C" NOT NULL PRIMARY KEY,
    version   bigint NOT NULL
);

-- Rows are never deleted, since a fence must grow for ever.
CREATE TABLE {schema}.locks (
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    owner      text NOT NULL,
    fence      bigint NOT NULL,
    expires_at bigint NOT NULL
);

-- A prepared statement's plan is made once. Made while a table is a single page, it reads the whole
-- table, and keeps doing so until the next ANALYZE, however fast the table fills. The planner looks
-- at the real number of pages: 128 empty ones in each table that loops look things up in (1 MiB
-- each), which VACUUM must not cut off, make every such plan use the index from the first day on.
ALTER TABLE {schema}.jobs SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.jobs (id, run_at, created_at, route, state, priority)
SELECT '00000000-0000-0000-0000-000000000000', 0, 0, 0, 6, 0 FROM generate_series(1, 800);
DELETE FROM {schema}.jobs;
ALTER TABLE {schema}.job_data SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.job_data (id, payload)
SELECT '00000000-0000-0000-0000-000000000000', repeat(' ', 600) FROM generate_series(1, 128);
DELETE FROM {schema}.job_data;
ALTER TABLE {schema}.job_notes SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.job_notes (job, message)
SELECT '00000000-0000-0000-0000-000000000000', repeat(' ', 600) FROM generate_series(1, 128);
DELETE FROM {schema}.job_notes;
ALTER TABLE {schema}.unique_keys SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.unique_keys (key, job)
SELECT repeat(' ', 600), '00000000-0000-0000-0000-000000000000' FROM generate_series(1, 128);
DELETE FROM {schema}.unique_keys;
ALTER TABLE {schema}.lanes SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.lanes (last_seq, queue, lane)
SELECT 0, '', repeat(' ', 600) FROM generate_series(1, 128);
DELETE FROM {schema}.lanes;
ALTER TABLE {schema}.lane_jobs SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.lane_jobs (job, seq, queue, lane)
SELECT '00000000-0000-0000-0000-000000000000', 0, '', repeat(' ', 600)
FROM generate_series(1, 128);
DELETE FROM {schema}.lane_jobs;
ALTER TABLE {schema}.idempotency_keys SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.idempotency_keys (key, job, reserved_at)
SELECT repeat(' ', 600), '00000000-0000-0000-0000-000000000000', 0 FROM generate_series(1, 128);
DELETE FROM {schema}.idempotency_keys;
ALTER TABLE {schema}.attempts SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.attempts (job, seq, claimed_at, ended_at, outcome, error)
SELECT '00000000-0000-0000-0000-000000000000', 0, 0, 0, 0, repeat(' ', 600)
FROM generate_series(1, 128);
DELETE FROM {schema}.attempts;

-- Room on each page for the new version of a row; and a vacuum that comes by rows changed, not by
-- the share of the table that changed, and does not pause: dead rows are what slows a queue down.
ALTER TABLE {schema}.jobs SET (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.job_data SET (fillfactor = 100);
ALTER TABLE {schema}.job_notes SET (fillfactor = 90);
ALTER TABLE {schema}.attempts SET (fillfactor = 100);
ALTER TABLE {schema}.idempotency_keys SET (fillfactor = 100);
ALTER TABLE {schema}.unique_keys SET (
    fillfactor = 100,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.lanes SET (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.lane_jobs SET (
    fillfactor = 100,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- A handful of rows, changed all the time: they stay on their page if it has room.
ALTER TABLE {schema}.nodes SET (fillfactor = 50);
ALTER TABLE {schema}.locks SET (fillfactor = 50);
ALTER TABLE {schema}.versions SET (fillfactor = 50);

ALTER TABLE {schema}.jobs ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE {schema}.job_data ADD CONSTRAINT job_data_pkey PRIMARY KEY (id);
ALTER TABLE {schema}.job_notes ADD CONSTRAINT job_notes_pkey PRIMARY KEY (job);
ALTER TABLE {schema}.attempts ADD CONSTRAINT attempts_pkey PRIMARY KEY (job, seq);
ALTER TABLE {schema}.unique_keys ADD CONSTRAINT unique_keys_pkey PRIMARY KEY (key);
ALTER TABLE {schema}.lanes ADD CONSTRAINT lanes_pkey PRIMARY KEY (queue, lane);
ALTER TABLE {schema}.lane_jobs ADD CONSTRAINT lane_jobs_pkey PRIMARY KEY (job);
ALTER TABLE {schema}.idempotency_keys ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (key);

-- The claim order inside one route and priority; finished and running jobs are not on it.
CREATE INDEX jobs_claim ON {schema}.jobs (route, priority, run_at, id) WHERE state = 0;
-- The running jobs: for reclaim and heartbeat.
CREATE INDEX jobs_running ON {schema}.jobs (id) WHERE state = 3;
-- The finished jobs, the longest finished first: for purges and for listings of dead letters.
CREATE INDEX jobs_finished ON {schema}.jobs (state, finished_at) WHERE state >= 4;
-- The order of each lane.
CREATE UNIQUE INDEX lane_jobs_order ON {schema}.lane_jobs (queue, lane, seq);
