-- Ratchet's tables, all in one schema. Times are milliseconds since 1970, durations are
-- milliseconds unless the name says otherwise. The checks keep out what no reader could read.
--
-- Ids are binary(16), which sorts as they do; uniqueidentifier sorts by other bytes first. Names are
-- nvarchar in a binary collation: no two that differ are equal, whatever the database's collation
-- says. Names are at most 128 bytes of UTF-8, so never more than 128 characters here.

-- The distinct (queue, kind, capability, permit), so that a job carries one small number for them.
-- Rows are never changed or deleted: every process caches them. '' is no capability, and no permit. An
-- id is one more than the largest, so ids are committed in their order and the largest says what is
-- new. A process that keeps routes in memory proves with the number and the stamp of one route that it
-- still talks to the database it read them from: a restored one, or one that took over, may have
-- given the number to another route, and never the stamp.
CREATE TABLE {schema}.routes (
    id         int NOT NULL,
    queue      nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    kind       nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    capability nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    permit     nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    stamp      bigint NOT NULL
               CONSTRAINT routes_stamp DEFAULT CAST(CAST(NEWID() AS varbinary(8)) AS bigint),
    CONSTRAINT routes_pkey PRIMARY KEY (id)
);

-- What changes while a job lives, and nothing else: claims and settlements rewrite this row.
-- It is clustered on the id, so that a job has one key to lock whichever way it is come by: with two, who
-- holds one and wants the other meets who came the other way. Ids begin with their time, so rows are
-- appended. The claim order is an index over pending jobs only: what it is made of changes (run_at,
-- priority), and a row would move with all of its indexes.
-- state: 0 pending, 1 blocked, 2 paused, 3 running, 4 succeeded, 5 failed, 6 cancelled.
-- flags: 1 the job has a unique key, 2 it has a timeout or a stall timeout, 4 it has a lane, 8 it waits
-- for others or for a signal, 16 others were linked to it, 32 it is in a batch, 64 it has tags, 128 its
-- route names a permit, 256 it has an expiry.
-- claimed_at, last_report, node and cancel_requested are those of the present claim if the job is
-- running, and otherwise left over from the last one. ran_for_us is of the claim that succeeded.
CREATE TABLE {schema}.jobs (
    id               binary(16) NOT NULL,
    run_at           bigint NOT NULL,
    created_at       bigint NOT NULL,
    claim_seq        bigint NOT NULL CONSTRAINT jobs_claim_seq DEFAULT 0,
    settled_seq      bigint NOT NULL CONSTRAINT jobs_settled_seq DEFAULT 0,
    route            int NOT NULL,
    attempts         int NOT NULL CONSTRAINT jobs_attempts DEFAULT 0,
    crash_count      int NOT NULL CONSTRAINT jobs_crash_count DEFAULT 0,
    state            smallint NOT NULL CONSTRAINT jobs_state_check CHECK (state BETWEEN 0 AND 6),
    priority         smallint NOT NULL CONSTRAINT jobs_priority_check CHECK (priority BETWEEN 0 AND 4),
    flags            smallint NOT NULL CONSTRAINT jobs_flags DEFAULT 0,
    cancel_requested bit NOT NULL CONSTRAINT jobs_cancel_requested DEFAULT 0,
    claimed_at       bigint NULL,
    finished_at      bigint NULL,
    last_report      bigint NULL,
    ran_for_us       bigint NULL,
    node             binary(16) NULL,
    CONSTRAINT jobs_pkey PRIMARY KEY CLUSTERED (id)
);

-- What is fixed at the enqueue; the id is the job's. Appended once, then only read.
-- retry: none means exactly 10 attempts, exponential from 1 s to 5 min, 25 % jitter.
-- recurring and slot: the definition that made the job, and the slot; a job made out of turn has none.
-- payload_version: the version of the payload's form; NULL means 1.
CREATE TABLE {schema}.job_data (
    id              binary(16) NOT NULL,
    timeout         bigint NULL,
    stall_timeout   bigint NULL,
    payload         nvarchar(max) NOT NULL,
    retry           nvarchar(max) NULL,
    unique_key      nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
    idempotency_key nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
    lane            nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
    traceparent     nvarchar(max) NULL,
    tracestate      nvarchar(max) NULL,
    recurring       nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
    slot            bigint NULL,
    payload_version int NULL,
    CONSTRAINT job_data_pkey PRIMARY KEY (id)
);

-- What bodies leave behind; only jobs that left something have a row.
CREATE TABLE {schema}.job_notes (
    job        binary(16) NOT NULL,
    [percent]  smallint NULL,
    message    nvarchar(max) NULL,
    [checkpoint] nvarchar(max) NULL,
    result     nvarchar(max) NULL,
    last_error nvarchar(max) NULL,
    CONSTRAINT job_notes_pkey PRIMARY KEY (job)
);

-- The ended claims of each job but the one that succeeded: nothing comes after it, so the row in
-- jobs remembers it.
-- outcome: 1 retried, 2 failed, 3 snoozed, 4 released, 5 cancelled, 6 lost.
CREATE TABLE {schema}.attempts (
    job        binary(16) NOT NULL,
    seq        bigint NOT NULL,
    claimed_at bigint NOT NULL,
    ended_at   bigint NOT NULL,
    ran_for_us bigint NULL,
    node       binary(16) NULL,
    outcome    smallint NOT NULL,
    error      nvarchar(max) NULL,
    CONSTRAINT attempts_pkey PRIMARY KEY (job, seq)
);

-- The unfinished job that has a unique key.
CREATE TABLE {schema}.unique_keys (
    [key] nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    job   binary(16) NOT NULL,
    CONSTRAINT unique_keys_pkey PRIMARY KEY ([key])
);

-- Who first had an idempotency key; rows outlive their jobs. From expires_at on, the key is free;
-- NULL means never.
CREATE TABLE {schema}.idempotency_keys (
    [key]       nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    job         binary(16) NOT NULL,
    reserved_at bigint NOT NULL,
    expires_at  bigint NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY ([key])
);

-- The tags of jobs. Jobs that have some have 64 in jobs.flags, so that the others are never looked
-- up here.
CREATE TABLE {schema}.job_tags (
    job binary(16) NOT NULL,
    tag nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    CONSTRAINT job_tags_pkey PRIMARY KEY (tag, job)
);

-- The lanes that have unfinished jobs, and the last sequence each gave. An emptied lane has no row.
-- A call that changes which jobs are unfinished in a lane locks its row first.
CREATE TABLE {schema}.lanes (
    last_seq bigint NOT NULL,
    queue    nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    lane     nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    CONSTRAINT lanes_pkey PRIMARY KEY (queue, lane)
);

-- The unfinished jobs of lanes: that with the lowest sequence is the head, the others are blocked.
CREATE TABLE {schema}.lane_jobs (
    job   binary(16) NOT NULL,
    seq   bigint NOT NULL,
    queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    lane  nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    CONSTRAINT lane_jobs_pkey PRIMARY KEY (job)
);

-- scope: 0 a queue, 1 a kind. '' means that the pause names no operator or no reason.
CREATE TABLE {schema}.pauses (
    scope     smallint NOT NULL CONSTRAINT pauses_scope_check CHECK (scope IN (0, 1)),
    name      nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    paused_at bigint NOT NULL,
    paused_by nvarchar(128) NOT NULL,
    reason    nvarchar(max) NOT NULL,
    CONSTRAINT pauses_pkey PRIMARY KEY (scope, name)
);

-- status: 0 joining, 1 active, 2 draining, 3 left, 4 dead.
-- kinds: the kinds that the node runs, one per line; NULL if it does not report them. totals: what
-- else the node reports of itself, such as its totals and its pools, as one JSON text.
CREATE TABLE {schema}.nodes (
    node         binary(16) NOT NULL,
    label        nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    status       smallint NOT NULL CONSTRAINT nodes_status_check CHECK (status BETWEEN 0 AND 4),
    running      bigint NOT NULL,
    capacity     bigint NOT NULL,
    interval     bigint NOT NULL,
    started_at   bigint NOT NULL,
    last_seen    bigint NOT NULL,
    connections  bigint NULL,
    cpu_percent  bigint NULL,
    memory_bytes bigint NULL,
    roles        nvarchar(max) NOT NULL,
    capabilities nvarchar(max) NOT NULL,
    kinds        nvarchar(max) NULL,
    totals       nvarchar(max) NULL,
    CONSTRAINT nodes_pkey PRIMARY KEY (node)
);

-- Version tokens. Rows are never deleted, since a version must grow for ever.
CREATE TABLE {schema}.versions (
    namespace nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    version   bigint NOT NULL,
    CONSTRAINT versions_pkey PRIMARY KEY (namespace)
);

-- Rows are never deleted, since a fence must grow for ever.
CREATE TABLE {schema}.locks (
    name       nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    owner      nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    fence      bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT locks_pkey PRIMARY KEY (name)
);

-- How many jobs that need a resource may run at once. Rows are never deleted: routes name them.
-- The holders of permits are not stored: they are the running jobs. A claim of jobs that need one
-- locks its row first.
CREATE TABLE {schema}.permits (
    resource nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    max_held bigint NOT NULL CONSTRAINT permits_max_held_check CHECK (max_held >= 0),
    CONSTRAINT permits_pkey PRIMARY KEY (resource)
);

-- The theoretical arrival time of each rate's next start, in microseconds since 1970; a row whose
-- time has passed is as good as none. granted says what the last write of the row was for: a start,
-- or another rate that made the time an earlier one.
CREATE TABLE {schema}.rates (
    [key]   nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    tat     bigint NOT NULL,
    granted bit NOT NULL,
    CONSTRAINT rates_pkey PRIMARY KEY ([key])
);

-- Recurring definitions.
-- definition: JSON; schedule, bounds, policies and what its jobs have in common.
-- revision: grows with every change, claim and firing. claimed_until: others leave it alone until then.
CREATE TABLE {schema}.recurring (
    name          nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    incarnation   binary(16) NOT NULL,
    revision      bigint NOT NULL,
    definition    nvarchar(max) NOT NULL,
    next_fire     bigint NULL,
    last_slot     bigint NULL,
    paused        bit NOT NULL CONSTRAINT recurring_paused DEFAULT 0,
    declared      bit NOT NULL CONSTRAINT recurring_declared DEFAULT 0,
    created_at    bigint NOT NULL,
    claimed_by    binary(16) NULL,
    claimed_until bigint NULL,
    CONSTRAINT recurring_pkey PRIMARY KEY (name)
);

-- What each job waits for, in the order in which it was given.
-- kind: 0 the parent is a job, 1 it is a batch. state: 0 open, 1 met, 2 unmet.
CREATE TABLE {schema}.links (
    child     binary(16) NOT NULL,
    parent    binary(16) NOT NULL,
    place     int NOT NULL,
    kind      smallint NOT NULL CONSTRAINT links_kind_check CHECK (kind BETWEEN 0 AND 1),
    state     smallint NOT NULL CONSTRAINT links_state DEFAULT 0
              CONSTRAINT links_state_check CHECK (state BETWEEN 0 AND 2),
    condition nvarchar(max) NOT NULL,
    CONSTRAINT links_pkey PRIMARY KEY (child, place)
);

-- The counts of the batches; ended_at is NULL until a batch has ended. A call that counts children
-- locks the row, and then looks for the jobs that wait for the batch.
CREATE TABLE {schema}.batches (
    id         binary(16) NOT NULL,
    total      bigint NOT NULL CONSTRAINT batches_total DEFAULT 0,
    succeeded  bigint NOT NULL CONSTRAINT batches_succeeded DEFAULT 0,
    failed     bigint NOT NULL CONSTRAINT batches_failed DEFAULT 0,
    cancelled  bigint NOT NULL CONSTRAINT batches_cancelled DEFAULT 0,
    created_at bigint NOT NULL,
    ended_at   bigint NULL,
    closed     bit NOT NULL CONSTRAINT batches_closed DEFAULT 0,
    CONSTRAINT batches_pkey PRIMARY KEY (id)
);

-- The children of batches, and whether their end was counted.
CREATE TABLE {schema}.batch_jobs (
    job     binary(16) NOT NULL,
    batch   binary(16) NOT NULL,
    counted bit NOT NULL CONSTRAINT batch_jobs_counted DEFAULT 0,
    CONSTRAINT batch_jobs_pkey PRIMARY KEY (job)
);

-- What signals jobs wait for.
-- state: 0 the job waits, 1 it came, 2 the job has ended without it.
CREATE TABLE {schema}.signals (
    job          binary(16) NOT NULL,
    timeout      bigint NOT NULL,
    deadline     bigint NOT NULL,
    delivered_at bigint NULL,
    state        smallint NOT NULL CONSTRAINT signals_state DEFAULT 0
                 CONSTRAINT signals_state_check CHECK (state BETWEEN 0 AND 2),
    [key]        nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    payload      nvarchar(max) NULL,
    CONSTRAINT signals_pkey PRIMARY KEY (job)
);

-- When jobs expire that have not begun. Only jobs with an expiry have a row.
-- closed: a pass has seen that the job has ended, so no pass looks at the row again.
CREATE TABLE {schema}.expiries (
    job        binary(16) NOT NULL,
    expires_at bigint NOT NULL,
    closed     bit NOT NULL CONSTRAINT expiries_closed DEFAULT 0,
    CONSTRAINT expiries_pkey PRIMARY KEY (job)
);

-- Finished jobs that were moved out of the way, each as one document; the other columns are what
-- they are found by. Nothing but the archive's own statements reads or writes it.
CREATE TABLE {schema}.archive (
    id          binary(16) NOT NULL,
    finished_at bigint NOT NULL,
    archived_at bigint NOT NULL,
    state       smallint NOT NULL,
    queue       nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    kind        nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    document    nvarchar(max) NOT NULL,
    CONSTRAINT archive_pkey PRIMARY KEY (id)
);

-- One route has at most 1,024 bytes, more than a clustered key may have and less than an index key.
CREATE UNIQUE INDEX routes_key ON {schema}.routes (queue, kind, capability, permit);
-- The claim order inside one route and priority; finished and running jobs are not on it.
CREATE INDEX jobs_claim ON {schema}.jobs (route, priority, run_at, id) WHERE state = 0;
-- The running jobs: for reclaim, and for heartbeats, which list the claims of their node.
CREATE INDEX jobs_running ON {schema}.jobs (node, id) INCLUDE (route, cancel_requested) WHERE state = 3;
-- The holders of permits, which are counted by route. A filtered index cannot test a bit of flags, so
-- this one has an entry for every running job.
CREATE INDEX jobs_permits ON {schema}.jobs (route) WHERE state = 3;
-- The finished jobs, the longest finished first: for purges and for listings of dead letters.
CREATE INDEX jobs_finished ON {schema}.jobs (state, finished_at, id) WHERE state >= 4;
-- Blocked and paused jobs, which no other index has.
CREATE INDEX jobs_waiting ON {schema}.jobs (id) WHERE state IN (1, 2);
-- The order of each lane.
CREATE UNIQUE INDEX lane_jobs_order ON {schema}.lane_jobs (queue, lane, seq);
-- The tags of a job.
CREATE INDEX job_tags_of_job ON {schema}.job_tags (job, tag);
-- The definitions whose slots come, in that order.
CREATE INDEX recurring_due ON {schema}.recurring (next_fire, name)
WHERE paused = 0 AND next_fire IS NOT NULL;
-- The definitions that are claimed.
CREATE INDEX recurring_claimed ON {schema}.recurring (claimed_until) WHERE claimed_until IS NOT NULL;
-- The children of each parent.
CREATE INDEX links_parent ON {schema}.links (parent, child);
-- Who still waits for a parent, which may have had very many children.
CREATE INDEX links_open ON {schema}.links (parent, child) INCLUDE (kind) WHERE state = 0;
-- The ended batches, the longest ended first: for purges.
CREATE INDEX batches_ended ON {schema}.batches (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX batch_jobs_batch ON {schema}.batch_jobs (batch, job);
CREATE INDEX signals_key ON {schema}.signals ([key], state, job);
-- The signals that are waited for, the first to be missed first.
CREATE INDEX signals_deadline ON {schema}.signals (deadline, job) WHERE state = 0;
-- The jobs that expire, the earliest first.
CREATE INDEX expiries_open ON {schema}.expiries (expires_at, job) WHERE closed = 0;
-- The archived jobs, the longest finished first.
CREATE INDEX archive_finished ON {schema}.archive (finished_at, id);
-- The idempotency keys with a lifetime, by its end: for purges.
CREATE INDEX idempotency_keys_expiry ON {schema}.idempotency_keys (expires_at, [key])
WHERE expires_at IS NOT NULL;

-- Rows are locked, never a table: one statement on many jobs must not stop every other. What stands
-- in for SQL Server in tests has no such setting, and no such locks.
IF SERVERPROPERTY('BabelfishVersion') IS NULL
BEGIN
    EXEC(N'ALTER TABLE {schema_in_text}.jobs SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.job_data SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.job_notes SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.attempts SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.unique_keys SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.idempotency_keys SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.job_tags SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.lanes SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.lane_jobs SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.rates SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.recurring SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.archive SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.links SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.batches SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.batch_jobs SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.signals SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.expiries SET (LOCK_ESCALATION = DISABLE)');
END;
