-- Ratchet's tables, all in one schema. Times are in milliseconds since 1970, and durations in
-- milliseconds unless the name says otherwise. The checks reject values that no reader could
-- decode.

-- The distinct (queue, kind, capability, permit), so that a job stores one small id for them.
-- Jobs with a fair key have routes of their own (fair), so that other jobs cost nothing more.
-- Jobs of shared queues have a route with the queue ''. A row with the kind '' is a marker: its
-- queue is an own queue.
-- Rows never change and are never deleted, since every process caches them. '' means no capability
-- or no permit. A new id is one more than the largest, so ids commit in order and the largest
-- reveals new routes. A process that caches routes uses the id and the stamp of one route to prove
-- that it still talks to the same database: after a restore or a failover, another route may have
-- the id, but never the stamp.
CREATE TABLE {schema}.routes (
    id         integer PRIMARY KEY,
    queue      text NOT NULL,
    kind       text NOT NULL,
    capability text NOT NULL DEFAULT '',
    permit     text COLLATE "C" NOT NULL DEFAULT '',
    stamp      bigint NOT NULL
               DEFAULT ('x' || left(translate(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint,
    fair       boolean NOT NULL DEFAULT false,
    UNIQUE (queue, kind, capability, permit, fair)
);

-- The columns of a job that change, since claims and settlements rewrite this row.
-- state: 0 pending, 1 blocked, 2 paused, 3 running, 4 succeeded, 5 failed, 6 cancelled.
-- flags: 1 has a unique key, 2 has a timeout or a stall timeout, 4 has a lane, 8 waits for other
-- jobs or for a signal, 16 has children, 32 is in a batch, 64 has tags, 128 its route names a
-- permit, 256 has an expiry, 512 was claimed while its fair key had a limit. claimed_at,
-- last_report, node and cancel_requested belong to the current claim if the job is running, and
-- otherwise remain from the last one. ran_for_us belongs
-- to the claim that succeeded. fair_key and fair_cost are NULL without a fair key. turn is NULL if
-- the job has no turn. queue is NULL unless the job has a shared route.
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
    node             uuid,
    fair_key         text COLLATE "C",
    fair_cost        integer,
    turn             bigint,
    queue            text COLLATE "C"
);

-- The data of a job that the enqueue fixes; the id is the job's. Inserted once, then only read.
-- retry: NULL means exactly 10 attempts, exponential from 1 s to 5 min, 25 % jitter.
-- recurring and slot: the definition that created the job, and the slot, which a job that was
-- triggered out of turn does not have.
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

-- The data that bodies store; only jobs with such data have a row.
CREATE TABLE {schema}.job_notes (
    job        uuid NOT NULL,
    percent    smallint,
    message    text,
    checkpoint text,
    result     text,
    last_error text
);

-- The ended claims of each job, except the one that succeeded: it is the last, so the row in jobs
-- holds it.
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

-- The unfinished job that holds each unique key.
CREATE TABLE {schema}.unique_keys (
    key text COLLATE "C" NOT NULL,
    job uuid NOT NULL
);

-- The first job of each idempotency key. Rows outlive their jobs. From expires_at on, the key is
-- free; NULL means never.
CREATE TABLE {schema}.idempotency_keys (
    key         text COLLATE "C" NOT NULL,
    job         uuid NOT NULL,
    reserved_at bigint NOT NULL,
    expires_at  bigint
);

-- The tags of jobs. Jobs with tags have 64 in jobs.flags, so that others are never looked up here.
CREATE TABLE {schema}.job_tags (
    job uuid NOT NULL,
    tag text COLLATE "C" NOT NULL
);

-- The lanes that have unfinished jobs, each with its last sequence number. An empty lane has no
-- row. A call that adds unfinished jobs to a lane or removes them locks its row first.
CREATE TABLE {schema}.lanes (
    last_seq bigint NOT NULL,
    queue    text COLLATE "C" NOT NULL,
    lane     text COLLATE "C" NOT NULL
);

-- The unfinished jobs of lanes: the one with the lowest sequence number is the head, the others are
-- blocked.
CREATE TABLE {schema}.lane_jobs (
    job   uuid NOT NULL,
    seq   bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    lane  text COLLATE "C" NOT NULL
);

-- scope: 0 a queue, 1 a kind. '' means that the pause names no operator or no reason.
CREATE TABLE {schema}.pauses (
    scope     smallint NOT NULL CHECK (scope IN (0, 1)),
    name      text COLLATE "C" NOT NULL,
    paused_at bigint NOT NULL,
    paused_by text NOT NULL,
    reason    text NOT NULL,
    PRIMARY KEY (scope, name)
);

-- status: 0 joining, 1 active, 2 draining, 3 left, 4 dead.
-- kinds: the kinds that the node runs, one per line; NULL if it does not report them. totals: what
-- else the node reports of itself, such as its totals and its pools, as one JSON text.
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

-- Version tokens. Rows are never deleted, since a version must grow forever.
CREATE TABLE {schema}.versions (
    namespace text COLLATE "C" NOT NULL PRIMARY KEY,
    version   bigint NOT NULL
);

-- Rows are never deleted, since a fence must grow forever.
-- session_pid, session_start: for a lock that ends with its holder's session, the process of that
-- session and its start in microseconds since 1970. Both are NULL for a lock that only expires.
CREATE TABLE {schema}.locks (
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    owner      text NOT NULL,
    fence      bigint NOT NULL,
    expires_at bigint NOT NULL,
    session_pid   integer,
    session_start bigint
);

-- The most jobs that may hold each resource at once. Rows are never deleted, since routes name
-- them. The holders of permits are the running jobs and are not stored. A claim of jobs that need a
-- resource locks its row first.
CREATE TABLE {schema}.permits (
    resource text COLLATE "C" NOT NULL PRIMARY KEY,
    max_held bigint NOT NULL CHECK (max_held >= 0)
);

-- The theoretical arrival time of each rate's next start, in microseconds since 1970. A row whose
-- time has passed is equivalent to no row. granted: whether the last write granted a start, or only
-- moved the time back because the rate had changed.
CREATE TABLE {schema}.rates (
    key     text COLLATE "C" NOT NULL PRIMARY KEY,
    tat     bigint NOT NULL,
    granted boolean NOT NULL
);

-- The most jobs of each fair key that may run at once in a queue. queue may be a pattern such as
-- 'mail*'. fair_key is '' if the limit is for each key.
CREATE TABLE {schema}.fair_limits (
    queue       text COLLATE "C" NOT NULL,
    fair_key    text COLLATE "C" NOT NULL,
    max_running bigint NOT NULL CHECK (max_running >= 0),
    PRIMARY KEY (queue, fair_key)
);

-- The fair keys of which parked jobs may get turns: a place may be free, or the limit was changed.
-- A key may have several rows. The next claim from the queue of the route deletes them.
CREATE TABLE {schema}.freed (
    id       bigint GENERATED ALWAYS AS IDENTITY,
    route    integer NOT NULL,
    fair_key text COLLATE "C" NOT NULL
);

-- Recurring definitions.
-- definition: JSON with the schedule, bounds, policies and the settings that its jobs share.
-- revision: grows with every change, claim and firing. claimed_until: when the claim expires.
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

-- The parents that each job waits for, in the order given.
-- kind: 0 the parent is a job, 1 it is a batch. state: 0 open, 1 met, 2 unmet.
CREATE TABLE {schema}.links (
    child     uuid NOT NULL,
    parent    uuid NOT NULL,
    place     integer NOT NULL,
    kind      smallint NOT NULL CHECK (kind BETWEEN 0 AND 1),
    state     smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    condition text NOT NULL
);

-- The batches with their counts; ended_at is NULL until a batch has ended. A call that counts
-- children locks the row, and then looks for the jobs that wait for the batch.
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

-- The signals that jobs wait for.
-- state: 0 the job waits, 1 the signal was delivered, 2 the job has ended without it.
CREATE TABLE {schema}.signals (
    job          uuid NOT NULL,
    timeout      bigint NOT NULL,
    deadline     bigint NOT NULL,
    delivered_at bigint,
    state        smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    key          text COLLATE "C" NOT NULL,
    payload      text
);

-- When jobs expire that have not begun. Only jobs with an expiry have a row.
-- closed: a pass has seen that the job has ended, so no pass looks at the row again.
CREATE TABLE {schema}.expiries (
    job        uuid NOT NULL,
    expires_at bigint NOT NULL,
    closed     boolean NOT NULL DEFAULT false
);

-- Archived finished jobs, each as one document; the other columns serve to find it. Only the
-- archive's own statements read or write this table.
CREATE TABLE {schema}.archive (
    id          uuid NOT NULL,
    finished_at bigint NOT NULL,
    archived_at bigint NOT NULL,
    state       smallint NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    document    text NOT NULL
);

-- The server plans a prepared statement once. Planned while a table has a single page, it reads the
-- whole table, and continues to until the next ANALYZE, however fast the table fills. The planner
-- uses the real number of pages. So each table that loops look rows up in gets 128 empty pages (1
-- MiB), which VACUUM must not truncate; then every such plan uses the index from the start.
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
ALTER TABLE {schema}.expiries SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.expiries (job, expires_at)
SELECT '00000000-0000-0000-0000-000000000000', 0 FROM generate_series(1, 1500);
DELETE FROM {schema}.expiries;
ALTER TABLE {schema}.freed SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.freed (route, fair_key)
SELECT 0, repeat(' ', 600) FROM generate_series(1, 128);
DELETE FROM {schema}.freed;

-- Leave room on each page for new row versions. Vacuum after a number of changed rows, not a share
-- of the table, and without pauses, because dead rows slow a queue down.
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
-- A row changes whenever children of its batch end, and stays on its page if there is room.
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
ALTER TABLE {schema}.expiries SET (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.freed SET (
    fillfactor = 100,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- A few rows that change all the time, and stay on their page if there is room.
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
ALTER TABLE {schema}.expiries ADD CONSTRAINT expiries_pkey PRIMARY KEY (job);
ALTER TABLE {schema}.freed ADD CONSTRAINT freed_pkey PRIMARY KEY (route, id);

-- The claim order within one route and priority, for pending jobs only.
CREATE INDEX jobs_claim ON {schema}.jobs (route, priority, run_at, id) WHERE state = 0;
-- The claim order of jobs with a fair key, the last turn of each key, and the jobs that sleep: those
-- without a turn. Other jobs cost nothing here. The conditions have state + 0, and that of jobs_key
-- has fair_key, so that the planner can use only the index that a statement is made for. Without
-- statistics, any index of (route, priority) looks as good, with a sort of all jobs.
CREATE INDEX jobs_turn ON {schema}.jobs (route, priority, turn, fair_key, id)
    WHERE state + 0 = 0 AND turn IS NOT NULL;
CREATE INDEX jobs_key ON {schema}.jobs (route, priority, fair_key, turn, id)
    WHERE state + 0 = 0 AND turn IS NOT NULL AND fair_key IS NOT NULL;
CREATE INDEX jobs_asleep ON {schema}.jobs (route, run_at, id)
    WHERE state + 0 = 0 AND turn IS NULL AND fair_key IS NOT NULL;
-- The claim order of the jobs of each shared queue. Jobs of own queues cost nothing here. The
-- condition has state + 0 for the same reason.
CREATE INDEX jobs_queue ON {schema}.jobs (queue, route, priority, run_at, id)
    WHERE state + 0 = 0 AND queue IS NOT NULL;
-- The running jobs: for reclaim, and for heartbeats, which list the claims of their node.
CREATE INDEX jobs_running ON {schema}.jobs (node) WHERE state = 3;
-- The holders of permits, counted by route. It costs nothing for other jobs.
CREATE INDEX jobs_permits ON {schema}.jobs (route) WHERE state = 3 AND flags & 128 <> 0;
-- The running jobs of fair keys with limits, counted by route and key. It costs nothing for others.
CREATE INDEX jobs_limited ON {schema}.jobs (route, fair_key) WHERE state = 3 AND flags & 512 <> 0;
-- The limits of each key of a queue or pattern.
CREATE INDEX fair_limits_each ON {schema}.fair_limits (queue) WHERE fair_key = '';
-- The finished jobs, the longest finished first: for purges and lists of dead letters.
CREATE INDEX jobs_finished ON {schema}.jobs (state, finished_at) WHERE state >= 4;
-- Blocked and paused jobs, which are in no other partial index.
CREATE INDEX jobs_waiting ON {schema}.jobs (id) WHERE state IN (1, 2);
-- The order of each lane.
CREATE UNIQUE INDEX lane_jobs_order ON {schema}.lane_jobs (queue, lane, seq);
-- The tags of a job.
CREATE INDEX job_tags_of_job ON {schema}.job_tags (job, tag);
-- The archived jobs, the longest finished first.
CREATE INDEX archive_finished ON {schema}.archive (finished_at, id);
-- The active definitions, in order of their next slot.
CREATE INDEX recurring_due ON {schema}.recurring (next_fire, name)
WHERE NOT paused AND next_fire IS NOT NULL;
-- The definitions that are claimed.
CREATE INDEX recurring_claimed ON {schema}.recurring (claimed_until) WHERE claimed_until IS NOT NULL;
-- The children of each parent.
CREATE INDEX links_parent ON {schema}.links (parent, child);
-- The children that still wait for a parent, which may have had very many children.
CREATE INDEX links_open ON {schema}.links (parent, child) WHERE state = 0;
-- The ended batches, the longest ended first: for purges.
CREATE INDEX batches_ended ON {schema}.batches (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX batch_jobs_batch ON {schema}.batch_jobs (batch, job);
CREATE INDEX signals_key ON {schema}.signals (key, state, job);
-- The signals that jobs wait for, the earliest deadline first.
CREATE INDEX signals_deadline ON {schema}.signals (deadline, job) WHERE state = 0;
-- The jobs that expire, the earliest first.
CREATE INDEX expiries_open ON {schema}.expiries (expires_at, job) WHERE NOT closed;
-- The idempotency keys with a lifetime, by its end: for purges.
CREATE INDEX idempotency_keys_expiry ON {schema}.idempotency_keys (expires_at)
WHERE expires_at IS NOT NULL;
