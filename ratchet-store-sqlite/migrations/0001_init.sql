-- Ratchet's tables. Times are milliseconds since 1970, durations are milliseconds unless the name
-- says otherwise, ids are the 16 bytes of a UUID. STRICT and the checks keep out what no reader
-- could read.

-- The distinct (queue, kind, capability, permit), so that a job carries one small number for them.
-- Jobs with a fair key have routes of their own (fair), so that others pay nothing for turns.
-- Jobs of shared queues have a route with the queue ''. A row with the kind '' is a marker: its
-- queue is an own queue.
-- Rows are never changed or deleted: every process caches them. '' is no capability, and no permit.
-- A process that keeps routes in memory proves with the number and the stamp of the last one that the
-- database is still the one it read them from: a restored one may have given the number to another
-- route, and never the stamp.
CREATE TABLE ratchet_routes (
    id         INTEGER PRIMARY KEY,
    queue      TEXT NOT NULL,
    kind       TEXT NOT NULL,
    capability TEXT NOT NULL DEFAULT '',
    permit     TEXT NOT NULL DEFAULT '',
    stamp      INTEGER NOT NULL DEFAULT 0,
    fair       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, kind, capability, permit, fair)
) STRICT;

-- What changes while a job lives, and nothing else: claims and settlements rewrite this row.
-- state: 0 pending, 1 blocked, 2 paused, 3 running, 4 succeeded, 5 failed, 6 cancelled.
-- flags: 1 the job has a unique key, 2 it has a timeout or a stall timeout, 4 it has a lane, 8 it waits
-- for others or for a signal, 16 others were linked to it, 32 it is in a batch, 64 it has tags, 128 its
-- route names a permit, 256 it has or had an expiry.
-- claimed_at, last_report, node and cancel_requested are those of the present claim if the job is
-- running, and otherwise left over from the last one. ran_for_us is of the claim that succeeded.
-- fair_key and fair_cost are null without a fair key. turn is null if the job has no turn.
-- queue is null unless the job has a shared route.
CREATE TABLE ratchet_jobs (
    id               BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    state            INTEGER NOT NULL CHECK (state BETWEEN 0 AND 6),
    route            INTEGER NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 4),
    run_at           INTEGER NOT NULL,
    data             INTEGER NOT NULL,
    flags            INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,
    crash_count      INTEGER NOT NULL DEFAULT 0,
    claim_seq        INTEGER NOT NULL DEFAULT 0,
    settled_seq      INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    claimed_at       INTEGER,
    last_report      INTEGER,
    ran_for_us       INTEGER,
    node             BLOB CHECK (length(node) = 16),
    fair_key         TEXT,
    fair_cost        INTEGER,
    turn             INTEGER,
    queue            TEXT
) STRICT, WITHOUT ROWID;

-- The claim order inside one route and priority; finished and running jobs are not on it.
CREATE INDEX ratchet_jobs_claim ON ratchet_jobs (route, priority, run_at, id) WHERE state = 0;
-- The claim order of jobs with a fair key, the last turn of each key, and the jobs that sleep: those
-- without a turn. Other jobs cost nothing here.
CREATE INDEX ratchet_jobs_turn ON ratchet_jobs (route, priority, turn, fair_key, id)
    WHERE state = 0 AND turn IS NOT NULL;
CREATE INDEX ratchet_jobs_key ON ratchet_jobs (route, priority, fair_key, turn, id)
    WHERE state = 0 AND turn IS NOT NULL;
CREATE INDEX ratchet_jobs_asleep ON ratchet_jobs (route, run_at, id)
    WHERE state = 0 AND turn IS NULL AND fair_key IS NOT NULL;
-- The claim order of the jobs of each shared queue. Jobs of own queues cost nothing here.
CREATE INDEX ratchet_jobs_queue ON ratchet_jobs (queue, route, priority, run_at, id)
    WHERE state = 0 AND queue IS NOT NULL;
-- The running jobs: for reclaim, and for heartbeats, which list the claims of their node.
CREATE INDEX ratchet_jobs_running ON ratchet_jobs (node, id, route) WHERE state = 3;
-- The holders of permits, which are counted by route. Other jobs pay nothing for it.
CREATE INDEX ratchet_jobs_permits ON ratchet_jobs (route) WHERE state = 3 AND flags & 128 <> 0;
-- The running jobs of each fair key, which limits count. Other jobs pay nothing for it.
CREATE INDEX ratchet_jobs_places ON ratchet_jobs (route, fair_key)
    WHERE state = 3 AND fair_key IS NOT NULL;
-- The finished jobs, the longest finished first: for purges and for listings of dead letters.
CREATE INDEX ratchet_jobs_finished ON ratchet_jobs (state, finished_at, id) WHERE state >= 4;
-- Blocked and paused jobs, which no other index has.
CREATE INDEX ratchet_jobs_waiting ON ratchet_jobs (id) WHERE state IN (1, 2);

-- What is fixed at the enqueue; ratchet_jobs.data is the id here. Appended once, then only read.
-- retry: none means exactly 10 attempts, exponential from 1 s to 5 min, 25 % jitter.
-- recurring and slot: the definition that made the job, and the slot; a job made out of turn has none.
-- payload_version: the version of the payload's form; NULL means 1.
CREATE TABLE ratchet_job_data (
    id               INTEGER PRIMARY KEY,
    payload          TEXT NOT NULL,
    retry            TEXT,
    timeout          INTEGER,
    stall_timeout    INTEGER,
    unique_key       TEXT,
    idempotency_key  TEXT,
    lane             TEXT,
    traceparent      TEXT,
    tracestate       TEXT,
    recurring        TEXT,
    slot             INTEGER,
    payload_version  INTEGER
) STRICT;

-- What bodies leave behind; only jobs that left something have a row.
CREATE TABLE ratchet_job_notes (
    job        BLOB NOT NULL PRIMARY KEY,
    percent    INTEGER,
    message    TEXT,
    checkpoint TEXT,
    result     TEXT,
    last_error TEXT
) STRICT, WITHOUT ROWID;

-- The ended claims of each job but the one that succeeded: nothing comes after it, so the row in
-- ratchet_jobs remembers it.
-- outcome: 1 retried, 2 failed, 3 snoozed, 4 released, 5 cancelled, 6 lost.
CREATE TABLE ratchet_attempts (
    job        BLOB NOT NULL,
    seq        INTEGER NOT NULL,
    outcome    INTEGER NOT NULL,
    claimed_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    ran_for_us INTEGER,
    node       BLOB,
    error      TEXT,
    PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

-- The unfinished job that has a unique key.
CREATE TABLE ratchet_unique_keys (
    key TEXT NOT NULL PRIMARY KEY,
    job BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Who first had an idempotency key; rows outlive their jobs. From expires_at on, the key is free;
-- NULL means never.
CREATE TABLE ratchet_idempotency_keys (
    key         TEXT NOT NULL PRIMARY KEY,
    job         BLOB NOT NULL,
    reserved_at INTEGER NOT NULL,
    expires_at  INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX ratchet_idempotency_keys_expiry ON ratchet_idempotency_keys (expires_at)
WHERE expires_at IS NOT NULL;

-- The tags of jobs. Jobs that have some have 64 in ratchet_jobs.flags, so that the others are never
-- looked up here.
CREATE TABLE ratchet_job_tags (
    tag TEXT NOT NULL,
    job BLOB NOT NULL,
    PRIMARY KEY (tag, job)
) STRICT, WITHOUT ROWID;

-- The tags of a job.
CREATE INDEX ratchet_job_tags_of_job ON ratchet_job_tags (job, tag);

-- The lanes that have unfinished jobs, and the last sequence each gave. An emptied lane has no row.
CREATE TABLE ratchet_lanes (
    queue    TEXT NOT NULL,
    lane     TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (queue, lane)
) STRICT, WITHOUT ROWID;

-- The unfinished jobs of lanes: that with the lowest sequence is the head, the others are blocked.
CREATE TABLE ratchet_lane_jobs (
    job   BLOB NOT NULL PRIMARY KEY,
    queue TEXT NOT NULL,
    lane  TEXT NOT NULL,
    seq   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The order of each lane.
CREATE UNIQUE INDEX ratchet_lane_jobs_order ON ratchet_lane_jobs (queue, lane, seq);

-- scope: 0 a queue, 1 a kind. '' means that the pause names no operator or no reason.
CREATE TABLE ratchet_pauses (
    scope     INTEGER NOT NULL CHECK (scope IN (0, 1)),
    name      TEXT NOT NULL,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    reason    TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- status: 0 joining, 1 active, 2 draining, 3 left, 4 dead.
-- kinds: the kinds that the node runs, one per line; NULL if it does not report them. totals: what
-- else the node reports of itself, such as its totals and its pools, as one JSON text.
CREATE TABLE ratchet_nodes (
    node       BLOB NOT NULL PRIMARY KEY CHECK (length(node) = 16),
    label      TEXT NOT NULL,
    status     INTEGER NOT NULL CHECK (status BETWEEN 0 AND 4),
    running    INTEGER NOT NULL,
    capacity   INTEGER NOT NULL,
    interval   INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    last_seen  INTEGER NOT NULL,
    connections  INTEGER,
    cpu_percent  INTEGER,
    memory_bytes INTEGER,
    roles        TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    kinds        TEXT,
    totals       TEXT
) STRICT, WITHOUT ROWID;

-- Version tokens. Rows are never deleted, since a version must grow for ever.
CREATE TABLE ratchet_versions (
    namespace TEXT NOT NULL PRIMARY KEY,
    version   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Rows are never deleted, since a fence must grow for ever.
CREATE TABLE ratchet_locks (
    name       TEXT NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,
    fence      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How many jobs that need a resource may run at once. Rows are never deleted: routes name them.
-- Nothing is kept of who holds a permit; that is who runs.
CREATE TABLE ratchet_permits (
    resource TEXT NOT NULL PRIMARY KEY,
    max_held INTEGER NOT NULL CHECK (max_held >= 0)
) STRICT, WITHOUT ROWID;

-- How many jobs of a fair key may run at once. queue: a queue, or a prefix and '*'. fair_key: '' means
-- all keys. What runs is counted, so nothing is kept of a key without a limit of its own.
CREATE TABLE ratchet_fair_limits (
    queue       TEXT NOT NULL,
    fair_key    TEXT NOT NULL,
    max_running INTEGER NOT NULL CHECK (max_running >= 0),
    PRIMARY KEY (fair_key, queue)
) STRICT, WITHOUT ROWID;

-- The fair keys whose parked jobs may get places; the next claims look at them. route: any route of
-- the queue for jobs with a fair key. The entry with the smallest id is the oldest.
CREATE TABLE ratchet_freed (
    id       INTEGER PRIMARY KEY,
    route    INTEGER NOT NULL,
    fair_key TEXT NOT NULL,
    UNIQUE (route, fair_key)
) STRICT;

-- The theoretical arrival time of each rate's next start, in microseconds since 1970; a row whose
-- time has passed is as good as none.
CREATE TABLE ratchet_rates (
    key TEXT NOT NULL PRIMARY KEY,
    tat INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Recurring definitions.
-- definition: JSON; schedule, bounds, policies and what its jobs have in common.
-- revision: grows with every change, claim and firing. claimed_until: others leave it alone until then.
CREATE TABLE ratchet_recurring (
    name          TEXT NOT NULL PRIMARY KEY,
    incarnation   BLOB NOT NULL CHECK (length(incarnation) = 16),
    revision      INTEGER NOT NULL,
    definition    TEXT NOT NULL,
    next_fire     INTEGER,
    last_slot     INTEGER,
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    declared      INTEGER NOT NULL DEFAULT 0 CHECK (declared IN (0, 1)),
    created_at    INTEGER NOT NULL,
    claimed_by    BLOB CHECK (length(claimed_by) = 16),
    claimed_until INTEGER
) STRICT, WITHOUT ROWID;

-- The definitions whose slots come, in that order.
CREATE INDEX ratchet_recurring_due ON ratchet_recurring (next_fire, name)
WHERE paused = 0 AND next_fire IS NOT NULL;
-- The definitions that are claimed.
CREATE INDEX ratchet_recurring_claimed ON ratchet_recurring (claimed_until)
WHERE claimed_until IS NOT NULL;

-- What each job waits for, in the order in which it was given.
-- kind: 0 the parent is a job, 1 it is a batch. state: 0 open, 1 met, 2 unmet.
CREATE TABLE ratchet_links (
    child     BLOB NOT NULL,
    place     INTEGER NOT NULL,
    kind      INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 1),
    parent    BLOB NOT NULL CHECK (length(parent) = 16),
    state     INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    condition TEXT NOT NULL,
    PRIMARY KEY (child, place)
) STRICT, WITHOUT ROWID;

-- The children of each parent.
CREATE INDEX ratchet_links_parent ON ratchet_links (parent, child);
-- Who still waits for a parent, which may have had very many children.
CREATE INDEX ratchet_links_open ON ratchet_links (parent, child) WHERE state = 0;

-- How the batches stand; no time of an end: they have not ended.
CREATE TABLE ratchet_batches (
    id         BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    total      INTEGER NOT NULL DEFAULT 0,
    succeeded  INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0,
    cancelled  INTEGER NOT NULL DEFAULT 0,
    closed     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT, WITHOUT ROWID;

-- The ended batches, the longest ended first: for purges.
CREATE INDEX ratchet_batches_ended ON ratchet_batches (ended_at, id) WHERE ended_at IS NOT NULL;

-- The children of batches, and whether their end was counted.
CREATE TABLE ratchet_batch_jobs (
    job     BLOB NOT NULL PRIMARY KEY,
    batch   BLOB NOT NULL CHECK (length(batch) = 16),
    counted INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX ratchet_batch_jobs_batch ON ratchet_batch_jobs (batch, job);

-- What signals jobs wait for.
-- state: 0 the job waits, 1 it came, 2 the job has ended without it.
CREATE TABLE ratchet_signals (
    job          BLOB NOT NULL PRIMARY KEY,
    key          TEXT NOT NULL,
    timeout      INTEGER NOT NULL,
    deadline     INTEGER NOT NULL,
    state        INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    delivered_at INTEGER,
    payload      TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX ratchet_signals_key ON ratchet_signals (key, state, job);
-- The signals that are waited for, the first to be missed first.
CREATE INDEX ratchet_signals_deadline ON ratchet_signals (deadline, job) WHERE state = 0;

-- When jobs expire that have not begun. Only jobs with an expiry have a row.
-- closed: 1 the job has ended, so no pass looks at the row again.
CREATE TABLE ratchet_expiries (
    job        BLOB NOT NULL PRIMARY KEY,
    expires_at INTEGER NOT NULL,
    closed     INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1))
) STRICT, WITHOUT ROWID;

-- The first to expire first.
CREATE INDEX ratchet_expiries_open ON ratchet_expiries (expires_at, job) WHERE closed = 0;

-- Finished jobs that were moved out of the way, each as one document; the other columns are what
-- they are found by. Nothing but the archive's own statements reads or writes it.
CREATE TABLE ratchet_archive (
    id          BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    state       INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    archived_at INTEGER NOT NULL,
    queue       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    document    TEXT NOT NULL
) STRICT;

-- The longest finished first.
CREATE INDEX ratchet_archive_finished ON ratchet_archive (finished_at, id);
