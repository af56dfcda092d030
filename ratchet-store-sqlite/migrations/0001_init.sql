-- Ratchet's tables. Times are milliseconds since 1970, durations are milliseconds unless the name
-- says otherwise, ids are the 16 bytes of a UUID. STRICT and the checks keep out what no reader
-- could read.

-- The distinct (queue, kind, capability) triples, so that a job carries one small number for them.
-- Rows are never changed or deleted: every process caches them. '' is no capability.
CREATE TABLE ratchet_routes (
    id         INTEGER PRIMARY KEY,
    queue      TEXT NOT NULL,
    kind       TEXT NOT NULL,
    capability TEXT NOT NULL DEFAULT '',
    UNIQUE (queue, kind, capability)
) STRICT;

-- What changes while a job lives, and nothing else: claims and settlements rewrite this row.
-- state: 0 pending, 1 blocked, 2 paused, 3 running, 4 succeeded, 5 failed, 6 cancelled.
-- flags: 1 the job has a unique key, 2 it has a timeout or a stall timeout, 4 it has a lane.
-- claimed_at, last_report, node and cancel_requested are those of the present claim if the job is
-- running, and otherwise left over from the last one. ran_for_us is of the claim that succeeded.
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
    node             BLOB CHECK (length(node) = 16)
) STRICT, WITHOUT ROWID;

-- The claim order inside one route and priority; finished and running jobs are not on it.
CREATE INDEX ratchet_jobs_claim ON ratchet_jobs (route, priority, run_at, id) WHERE state = 0;
-- The running jobs in order of id, those somebody wants cancelled apart: for reclaim and heartbeat.
CREATE INDEX ratchet_jobs_running ON ratchet_jobs (cancel_requested, id) WHERE state = 3;
-- The finished jobs, the longest finished first: for purges and for listings of dead letters.
CREATE INDEX ratchet_jobs_finished ON ratchet_jobs (state, finished_at, id) WHERE state >= 4;

-- What is fixed at the enqueue; ratchet_jobs.data is the id here. Appended once, then only read.
-- retry: none means exactly 10 attempts, exponential from 1 s to 5 min, 25 % jitter.
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
    tracestate       TEXT
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

-- Who has a unique key: an unfinished job.
CREATE TABLE ratchet_unique_keys (
    key TEXT NOT NULL PRIMARY KEY,
    job BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Who first had an idempotency key; rows outlive their jobs.
CREATE TABLE ratchet_idempotency_keys (
    key         TEXT NOT NULL PRIMARY KEY,
    job         BLOB NOT NULL,
    reserved_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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

CREATE TABLE ratchet_paused_queues (
    queue     TEXT NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- status: 0 joining, 1 active, 2 draining, 3 left, 4 dead.
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
    capabilities TEXT NOT NULL
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
