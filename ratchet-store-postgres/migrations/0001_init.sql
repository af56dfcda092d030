-- Ratchet's tables, all in one schema. Times are milliseconds since 1970, durations are
-- milliseconds unless the name says otherwise. The checks keep out what no reader could read.

-- The distinct (queue, kind, capability, permit), so that a job carries one small number for them.
-- Rows are never changed or deleted: every process caches them. '' is no capability, and no permit. An
-- id is one more than the largest, so ids are committed in their order and the largest says what is new.
-- A process that keeps routes in memory proves with the number and the stamp of one route that it
-- still talks to the database it read them from: a restored one, or one that took over, may have
-- given the number to another route, and never the stamp.
CREATE TABLE {schema}.routes (
    id         integer PRIMARY KEY,
    queue      text NOT NULL,
    kind       text NOT NULL,
    capability text NOT NULL DEFAULT '',
    permit     text COLLATE "C" NOT NULL DEFAULT '',
    stamp      bigint NOT NULL
               DEFAULT ('x' || left(translate(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint,
    UNIQUE (queue, kind, capability, permit)
);

-- What changes while a job lives, and nothing else: claims and settlements rewrite this row.
-- state: 0 pending, 1 blocked, 2 paused, 3 running, 4 succeeded, 5 failed, 6 cancelled.
-- flags: 1 the job has a unique key, 2 it has a timeout or a stall timeout, 4 it has a lane, 8 it waits
-- for others or for a signal, 16 others were linked to it, 32 it is in a batch, 64 it has tags, 128 its
-- route names a permit.
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
-- recurring and slot: the definition that made the job, and the slot; a job made out of turn has none.
-- payload_version: the version of the payload's form; NULL means 1.
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
    tracestate      text,
    recurring       text,
    slot            bigint,
    payload_version integer
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

-- The unfinished job that has a unique key.
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

-- The tags of jobs. Jobs that have some have 64 in jobs.flags, so that the others are never looked
-- up here.
CREATE TABLE {schema}.job_tags (
    job uuid NOT NULL,
    tag text COLLATE "C" NOT NULL
);

-- The lanes that have unfinished jobs, and the last sequence each gave. An emptied lane has no row.
-- A call that changes which jobs are unfinished in a lane locks its row first.
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
-- kinds: those that the node runs, one a line; NULL if it does not say. totals: what it has done since it
-- was built, one JSON text.
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
    capabilities text NOT NULL,
    kinds        text,
    totals       text
);

-- Version tokens. Rows are never deleted, since a version must grow for ever.
CREATE TABLE {schema}.versions (
    namespace text COLLATE "C" NOT NULL PRIMARY KEY,
    version   bigint NOT NULL
);

-- Rows are never deleted, since a fence must grow for ever.
-- session_pid, session_start: of a lock that ends with the session of its holder, the process of that
-- session and when it began, in microseconds since 1970. Both are none for a lock that only time ends.
CREATE TABLE {schema}.locks (
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    owner      text NOT NULL,
    fence      bigint NOT NULL,
    expires_at bigint NOT NULL,
    session_pid   integer,
    session_start bigint
);

-- How many jobs that need a resource may run at once. Rows are never deleted: routes name them.
-- The holders of permits are not stored: they are the running jobs. A claim of jobs that need one
-- locks its row first.
CREATE TABLE {schema}.permits (
    resource text COLLATE "C" NOT NULL PRIMARY KEY,
    max_held bigint NOT NULL CHECK (max_held >= 0)
);

-- The theoretical arrival time of each rate's next start, in microseconds since 1970; a row whose
-- time has passed is as good as none. granted says what the last write of the row was for: a start,
-- or another rate that made the time an earlier one.
CREATE TABLE {schema}.rates (
    key     text COLLATE "C" NOT NULL PRIMARY KEY,
    tat     bigint NOT NULL,
    granted boolean NOT NULL
);

-- Recurring definitions.
-- definition: JSON; schedule, bounds, policies and what its jobs have in common.
-- revision: grows with every change, claim and firing. claimed_until: others leave it alone until then.
CREATE TABLE {schema}.recurring (
    name          text COLLATE "C" NOT NULL PRIMARY KEY,
    incarnation   uuid NOT NULL,
    revision      bigint NOT NULL,
    definition    text NOT NULL,
    next_fire     bigint,
    last_slot     bigint,
    paused        boolean NOT NULL DEFAULT false,
    declared      boolean NOT NULL DEFAULT false,
    created_at    bigint NOT NULL,
    claimed_by    uuid,
    claimed_until bigint
);

-- What each job waits for, in the order in which it was given.
-- kind: 0 the parent is a job, 1 it is a batch. state: 0 open, 1 met, 2 unmet.
CREATE TABLE {schema}.links (
    child     uuid NOT NULL,
    parent    uuid NOT NULL,
    place     integer NOT NULL,
    kind      smallint NOT NULL CHECK (kind BETWEEN 0 AND 1),
    state     smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    condition text NOT NULL
);

-- The counts of the batches; ended_at is NULL until a batch has ended. A call that counts children
-- locks the row, and then looks for the jobs that wait for the batch.
CREATE TABLE {schema}.batches (
    id         uuid NOT NULL,
    total      bigint NOT NULL DEFAULT 0,
    succeeded  bigint NOT NULL DEFAULT 0,
    failed     bigint NOT NULL DEFAULT 0,
    cancelled  bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    ended_at   bigint,
    closed     boolean NOT NULL DEFAULT false
);

-- The children of batches, and whether their end was counted.
CREATE TABLE {schema}.batch_jobs (
    job     uuid NOT NULL,
    batch   uuid NOT NULL,
    counted boolean NOT NULL DEFAULT false
);

-- What signals jobs wait for.
-- state: 0 the job waits, 1 it came, 2 the job has ended without it.
CREATE TABLE {schema}.signals (
    job          uuid NOT NULL,
    timeout      bigint NOT NULL,
    deadline     bigint NOT NULL,
    delivered_at bigint,
    state        smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    key          text COLLATE "C" NOT NULL,
    payload      text
);

-- Finished jobs that were moved out of the way, each as one document; the other columns are what
-- they are found by. Nothing but the archive's own statements reads or writes it.
CREATE TABLE {schema}.archive (
    id          uuid NOT NULL,
    finished_at bigint NOT NULL,
    archived_at bigint NOT NULL,
    state       smallint NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    document    text NOT NULL
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
ALTER TABLE {schema}.job_tags SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.job_tags (job, tag)
SELECT '00000000-0000-0000-0000-000000000000', repeat(' ', 600) FROM generate_series(1, 128);
DELETE FROM {schema}.job_tags;
ALTER TABLE {schema}.archive SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.archive (id, finished_at, archived_at, state, queue, kind, document)
SELECT '00000000-0000-0000-0000-000000000000', 0, 0, 6, '', '', repeat(' ', 600)
FROM generate_series(1, 128);
DELETE FROM {schema}.archive;
ALTER TABLE {schema}.links SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.links (child, parent, place, kind, condition)
SELECT '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', 0, 0,
       repeat(' ', 600)
FROM generate_series(1, 128);
DELETE FROM {schema}.links;
ALTER TABLE {schema}.batches SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.batches (id, created_at)
SELECT '00000000-0000-0000-0000-000000000000', 0 FROM generate_series(1, 1000);
DELETE FROM {schema}.batches;
ALTER TABLE {schema}.batch_jobs SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.batch_jobs (job, batch)
SELECT '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000'
FROM generate_series(1, 1500);
DELETE FROM {schema}.batch_jobs;
ALTER TABLE {schema}.signals SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.signals (job, timeout, deadline, key)
SELECT '00000000-0000-0000-0000-000000000000', 0, 0, repeat(' ', 600)
FROM generate_series(1, 128);
DELETE FROM {schema}.signals;

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
ALTER TABLE {schema}.job_tags SET (fillfactor = 100);
ALTER TABLE {schema}.archive SET (fillfactor = 100);
ALTER TABLE {schema}.links SET (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
-- A row is changed whenever children of its batch end: it stays on its page if it has room.
ALTER TABLE {schema}.batches SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.batch_jobs SET (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.signals SET (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- A handful of rows, changed all the time: they stay on their page if it has room.
ALTER TABLE {schema}.nodes SET (fillfactor = 50);
ALTER TABLE {schema}.locks SET (fillfactor = 50);
ALTER TABLE {schema}.versions SET (fillfactor = 50);
ALTER TABLE {schema}.recurring SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.permits SET (fillfactor = 50);
ALTER TABLE {schema}.rates SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE {schema}.jobs ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE {schema}.job_data ADD CONSTRAINT job_data_pkey PRIMARY KEY (id);
ALTER TABLE {schema}.job_notes ADD CONSTRAINT job_notes_pkey PRIMARY KEY (job);
ALTER TABLE {schema}.attempts ADD CONSTRAINT attempts_pkey PRIMARY KEY (job, seq);
ALTER TABLE {schema}.unique_keys ADD CONSTRAINT unique_keys_pkey PRIMARY KEY (key);
ALTER TABLE {schema}.lanes ADD CONSTRAINT lanes_pkey PRIMARY KEY (queue, lane);
ALTER TABLE {schema}.lane_jobs ADD CONSTRAINT lane_jobs_pkey PRIMARY KEY (job);
ALTER TABLE {schema}.idempotency_keys ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (key);
ALTER TABLE {schema}.job_tags ADD CONSTRAINT job_tags_pkey PRIMARY KEY (tag, job);
ALTER TABLE {schema}.archive ADD CONSTRAINT archive_pkey PRIMARY KEY (id);
ALTER TABLE {schema}.links ADD CONSTRAINT links_pkey PRIMARY KEY (child, place);
ALTER TABLE {schema}.batches ADD CONSTRAINT batches_pkey PRIMARY KEY (id);
ALTER TABLE {schema}.batch_jobs ADD CONSTRAINT batch_jobs_pkey PRIMARY KEY (job);
ALTER TABLE {schema}.signals ADD CONSTRAINT signals_pkey PRIMARY KEY (job);

-- The claim order inside one route and priority; finished and running jobs are not on it.
CREATE INDEX jobs_claim ON {schema}.jobs (route, priority, run_at, id) WHERE state = 0;
-- The running jobs: for reclaim, and for heartbeats, which list the claims of their node.
CREATE INDEX jobs_running ON {schema}.jobs (node) WHERE state = 3;
-- The holders of permits, which are counted by route. Other jobs pay nothing for it.
CREATE INDEX jobs_permits ON {schema}.jobs (route) WHERE state = 3 AND flags & 128 <> 0;
-- The finished jobs, the longest finished first: for purges and for listings of dead letters.
CREATE INDEX jobs_finished ON {schema}.jobs (state, finished_at) WHERE state >= 4;
-- Blocked and paused jobs, which no other index has.
CREATE INDEX jobs_waiting ON {schema}.jobs (id) WHERE state IN (1, 2);
-- The order of each lane.
CREATE UNIQUE INDEX lane_jobs_order ON {schema}.lane_jobs (queue, lane, seq);
-- The tags of a job.
CREATE INDEX job_tags_of_job ON {schema}.job_tags (job, tag);
-- The archived jobs, the longest finished first.
CREATE INDEX archive_finished ON {schema}.archive (finished_at, id);
-- The definitions whose slots come, in that order.
CREATE INDEX recurring_due ON {schema}.recurring (next_fire, name)
WHERE NOT paused AND next_fire IS NOT NULL;
-- The definitions that are claimed.
CREATE INDEX recurring_claimed ON {schema}.recurring (claimed_until) WHERE claimed_until IS NOT NULL;
-- The children of each parent.
CREATE INDEX links_parent ON {schema}.links (parent, child);
-- Who still waits for a parent, which may have had very many children.
CREATE INDEX links_open ON {schema}.links (parent, child) WHERE state = 0;
-- The ended batches, the longest ended first: for purges.
CREATE INDEX batches_ended ON {schema}.batches (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX batch_jobs_batch ON {schema}.batch_jobs (batch, job);
CREATE INDEX signals_key ON {schema}.signals (key, state, job);
-- The signals that are waited for, the first to be missed first.
CREATE INDEX signals_deadline ON {schema}.signals (deadline, job) WHERE state = 0;
