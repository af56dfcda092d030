-- Ratchet's tables. Times are in milliseconds since 1970, and durations in milliseconds unless the
-- name says otherwise. Ids are BINARY(16), which sorts as the ids do. Texts have the collation
-- utf8mb4_bin, so names compare byte for byte. The server commits after each statement of a
-- migration, so each statement must be repeatable.

-- The distinct (queue, kind, capability, permit), so that a job stores one small id for them. Rows
-- never change and are never deleted, since every process caches them. '' means no capability or no
-- permit. A new id is one more than the largest, so ids commit in order and the largest reveals new
-- routes. Jobs with a fair key have routes of their own (fair). A process that caches routes uses
-- the id and the stamp of one route to prove that it still talks to the same database: after a
-- restore or a failover, another route may have the id, but never the stamp.
CREATE TABLE {schema}.routes (
    id         INT NOT NULL,
    queue      VARCHAR(128) NOT NULL,
    kind       VARCHAR(128) NOT NULL,
    capability VARCHAR(128) NOT NULL,
    permit     VARCHAR(128) NOT NULL,
    stamp      BIGINT NOT NULL,
    fair       BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (id),
    UNIQUE INDEX routes_names (queue, kind, capability, permit, fair)
) {table};

-- The routes of jobs with a fair key, only to be locked: by the transaction that gives turns to
-- their jobs. It cannot lock the row in routes, which transactions of applications share.
CREATE TABLE {schema}.fair_routes (
    route INT NOT NULL,
    PRIMARY KEY (route)
) {table};

-- The columns of a job that change, since claims and settlements rewrite this row.
-- state: 0 pending, 1 blocked, 2 paused, 3 running, 4 succeeded, 5 failed, 6 cancelled.
-- flags: 1 has a unique key, 2 has a timeout or a stall timeout, 4 has a lane, 8 waits for other
-- jobs or for a signal, 16 has children, 32 is in a batch, 64 has tags, 128 its route names a
-- permit, 256 has an expiry, 512 was claimed while its fair key had a limit. claimed_at,
-- last_report, node and cancel_requested belong to the current claim if the job is running, and
-- otherwise remain from the last one. ran_for_us belongs
-- to the claim that succeeded. fair_key and fair_cost are NULL without a fair key. turn is NULL if
-- the job has no turn. A running job has the turn with which it was claimed.
-- jobs_claim: the claim order of each route and priority; also the running jobs of each route.
-- jobs_state: the finished jobs, the longest finished first, because the columns after their finish
-- time are NULL; also the claims of each node, because their finish time is NULL; also the pending
-- jobs with a fair key: those with a turn in claim order, by level (8 * route + priority), and
-- those without one by due time (level -route). So three uses cost one index. The server has no
-- indexes over some of the rows.
CREATE TABLE {schema}.jobs (
    id               BINARY(16) NOT NULL,
    run_at           BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    claim_seq        BIGINT NOT NULL DEFAULT 0,
    settled_seq      BIGINT NOT NULL DEFAULT 0,
    route            INT NOT NULL,
    attempts         INT NOT NULL DEFAULT 0,
    crash_count      INT NOT NULL DEFAULT 0,
    state            TINYINT NOT NULL,
    priority         TINYINT NOT NULL,
    flags            SMALLINT NOT NULL DEFAULT 0,
    cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
    claimed_at       BIGINT,
    finished_at      BIGINT,
    last_report      BIGINT,
    ran_for_us       BIGINT,
    node             BINARY(16),
    fair_key         VARCHAR(128),
    fair_cost        INT,
    turn             BIGINT,
    holder           BINARY(16) AS (CASE WHEN state = 3 THEN node END) STORED,
    turn_level       BIGINT AS (CASE WHEN state = 0 AND fair_key IS NOT NULL THEN
                                CASE WHEN turn IS NULL THEN -route
                                     ELSE 8 * route + priority END END) STORED,
    turn_place       BIGINT AS (CASE WHEN state = 0 AND fair_key IS NOT NULL
                                THEN COALESCE(turn, run_at) END) STORED,
    turn_key         VARCHAR(128) AS (CASE WHEN state = 0 AND turn IS NOT NULL
                                      THEN fair_key END) STORED,
    PRIMARY KEY (id),
    INDEX jobs_claim (state, route, priority, run_at, id),
    INDEX jobs_state (state, finished_at, holder, turn_level, turn_place, turn_key, id),
    CHECK (state BETWEEN 0 AND 6),
    CHECK (priority BETWEEN 0 AND 4)
) {table};

-- The turns of pending jobs by fair key, to find the last turn of a key. Each row repeats what the
-- row of its job contains. A statement that takes the turn of a job away deletes it.
CREATE TABLE {schema}.turns (
    route     INT NOT NULL,
    priority  TINYINT NOT NULL,
    fair_key  VARCHAR(128) NOT NULL,
    turn      BIGINT NOT NULL,
    job       BINARY(16) NOT NULL,
    fair_cost INT,
    PRIMARY KEY (route, priority, fair_key, turn, job)
) {table};

-- The data of a job that the enqueue fixes; the id is the job's. Inserted once, then only read.
-- retry: NULL means exactly 10 attempts, exponential from 1 s to 5 min, 25 % jitter.
-- recurring and slot: the definition that created the job, and the slot, which a job that was
-- triggered out of turn does not have.
-- payload_version: the version of the payload's form; NULL means 1.
CREATE TABLE {schema}.job_data (
    id              BINARY(16) NOT NULL,
    timeout         BIGINT,
    stall_timeout   BIGINT,
    payload         LONGTEXT NOT NULL,
    retry           LONGTEXT,
    unique_key      VARCHAR(128),
    idempotency_key VARCHAR(128),
    lane            VARCHAR(128),
    traceparent     LONGTEXT,
    tracestate      LONGTEXT,
    recurring       VARCHAR(128),
    slot            BIGINT,
    payload_version INT,
    PRIMARY KEY (id)
) {table};

-- The data that bodies store; only jobs with such data have a row.
CREATE TABLE {schema}.job_notes (
    job        BINARY(16) NOT NULL,
    percent    SMALLINT,
    message    LONGTEXT,
    checkpoint LONGTEXT,
    result     LONGTEXT,
    last_error LONGTEXT,
    PRIMARY KEY (job)
) {table};

-- The ended claims of each job, except the one that succeeded: it is the last, so the row in jobs
-- holds it.
-- outcome: 1 retried, 2 failed, 3 snoozed, 4 released, 5 cancelled, 6 lost.
CREATE TABLE {schema}.attempts (
    job        BINARY(16) NOT NULL,
    seq        BIGINT NOT NULL,
    claimed_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL,
    ran_for_us BIGINT,
    node       BINARY(16),
    outcome    TINYINT NOT NULL,
    error      LONGTEXT,
    PRIMARY KEY (job, seq)
) {table};

-- The unfinished job that holds each unique key.
CREATE TABLE {schema}.unique_keys (
    `key` VARCHAR(128) NOT NULL,
    job   BINARY(16) NOT NULL,
    PRIMARY KEY (`key`)
) {table};

-- The first job of each idempotency key. Rows outlive their jobs. From expires_at on, the key is
-- free; NULL means never.
CREATE TABLE {schema}.idempotency_keys (
    `key`       VARCHAR(128) NOT NULL,
    job         BINARY(16) NOT NULL,
    reserved_at BIGINT NOT NULL,
    expires_at  BIGINT,
    PRIMARY KEY (`key`),
    INDEX idempotency_keys_expiry (expires_at, `key`)
) {table};

-- The tags of jobs. Jobs with tags have 64 in jobs.flags, so that others are never looked up here.
CREATE TABLE {schema}.job_tags (
    job BINARY(16) NOT NULL,
    tag VARCHAR(128) NOT NULL,
    PRIMARY KEY (tag, job),
    INDEX job_tags_of_job (job, tag)
) {table};

-- The lanes that have unfinished jobs, each with its last sequence number. An empty lane has no
-- row. A call that adds unfinished jobs to a lane or removes them locks its row first.
CREATE TABLE {schema}.lanes (
    last_seq BIGINT NOT NULL,
    queue    VARCHAR(128) NOT NULL,
    lane     VARCHAR(128) NOT NULL,
    PRIMARY KEY (queue, lane)
) {table};

-- The unfinished jobs of lanes: the one with the lowest sequence number is the head, the others are
-- blocked. The order is not unique for the server, because a unique secondary index takes gap
-- locks.
CREATE TABLE {schema}.lane_jobs (
    job   BINARY(16) NOT NULL,
    seq   BIGINT NOT NULL,
    queue VARCHAR(128) NOT NULL,
    lane  VARCHAR(128) NOT NULL,
    PRIMARY KEY (job),
    INDEX lane_jobs_order (queue, lane, seq)
) {table};

-- scope: 0 a queue, 1 a kind. '' means that the pause names no operator or no reason.
CREATE TABLE {schema}.pauses (
    scope     TINYINT NOT NULL,
    name      VARCHAR(128) NOT NULL,
    paused_at BIGINT NOT NULL,
    paused_by VARCHAR(128) NOT NULL,
    reason    LONGTEXT NOT NULL,
    PRIMARY KEY (scope, name)
) {table};

-- Two rows that are only locked. 1: each claim shares it, and a pause locks it alone, so no earlier
-- claim is still running when the pause returns. 2: nodes that join lock it, one after the other.
CREATE TABLE {schema}.gates (
    id TINYINT NOT NULL,
    PRIMARY KEY (id)
) {table};
INSERT IGNORE INTO {schema}.gates (id) VALUES (1), (2);

-- status: 0 joining, 1 active, 2 draining, 3 left, 4 dead.
-- kinds: the kinds that the node runs, one per line; NULL if it does not report them. totals: what
-- else the node reports of itself, such as its totals and its pools, as one JSON text.
CREATE TABLE {schema}.nodes (
    node         BINARY(16) NOT NULL,
    label        VARCHAR(128) NOT NULL,
    status       TINYINT NOT NULL,
    running      BIGINT NOT NULL,
    capacity     BIGINT NOT NULL,
    `interval`   BIGINT NOT NULL,
    started_at   BIGINT NOT NULL,
    last_seen    BIGINT NOT NULL,
    connections  BIGINT,
    cpu_percent  BIGINT,
    memory_bytes BIGINT,
    roles        LONGTEXT NOT NULL,
    capabilities LONGTEXT NOT NULL,
    kinds        LONGTEXT,
    totals       LONGTEXT,
    PRIMARY KEY (node),
    CHECK (status BETWEEN 0 AND 4)
) {table};

-- Version tokens. Rows are never deleted, since a version must grow forever.
CREATE TABLE {schema}.versions (
    namespace VARCHAR(128) NOT NULL,
    version   BIGINT NOT NULL,
    PRIMARY KEY (namespace)
) {table};

-- Rows are never deleted, since a fence must grow forever.
CREATE TABLE {schema}.locks (
    name       VARCHAR(255) NOT NULL,
    owner      VARCHAR(255) NOT NULL,
    fence      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (name)
) {table};

-- The most jobs that may hold each resource at once. Rows are never deleted, since routes name
-- them. The holders of permits are the running jobs and are not stored. A claim of jobs that need a
-- resource locks its row first.
CREATE TABLE {schema}.permits (
    resource VARCHAR(128) NOT NULL,
    max_held BIGINT NOT NULL,
    PRIMARY KEY (resource),
    CHECK (max_held >= 0)
) {table};

-- The theoretical arrival time of each rate's next start, in microseconds since 1970. A row whose
-- time has passed is equivalent to no row. granted: whether the last write granted a start, or only
-- moved the time back because the rate had changed.
CREATE TABLE {schema}.rates (
    `key`   VARCHAR(128) NOT NULL,
    tat     BIGINT NOT NULL,
    granted BOOLEAN NOT NULL,
    PRIMARY KEY (`key`)
) {table};

-- The most jobs of each fair key that may run at once in a queue. queue may be a pattern such as
-- 'mail*'. fair_key is '' if the limit is for each key.
CREATE TABLE {schema}.fair_limits (
    queue       VARCHAR(128) NOT NULL,
    fair_key    VARCHAR(128) NOT NULL,
    max_running BIGINT NOT NULL,
    PRIMARY KEY (queue, fair_key),
    INDEX fair_limits_key (fair_key, queue),
    CHECK (max_running >= 0)
) {table};

-- The fair keys of which parked jobs may get turns: a place may be free, or the limit was changed.
-- A key may have several rows. The next claim from the queue of the route deletes them.
CREATE TABLE {schema}.freed (
    id       BIGINT NOT NULL AUTO_INCREMENT,
    route    INT NOT NULL,
    fair_key VARCHAR(128) NOT NULL,
    PRIMARY KEY (id),
    INDEX freed_route (route, id)
) {table};

-- Recurring definitions.
-- definition: JSON with the schedule, bounds, policies and the settings that its jobs share.
-- revision: grows with every change, claim and firing. claimed_until: when the claim expires.
CREATE TABLE {schema}.recurring (
    name          VARCHAR(128) NOT NULL,
    incarnation   BINARY(16) NOT NULL,
    revision      BIGINT NOT NULL,
    definition    LONGTEXT NOT NULL,
    next_fire     BIGINT,
    last_slot     BIGINT,
    paused        BOOLEAN NOT NULL DEFAULT FALSE,
    declared      BOOLEAN NOT NULL DEFAULT FALSE,
    created_at    BIGINT NOT NULL,
    claimed_by    BINARY(16),
    claimed_until BIGINT,
    PRIMARY KEY (name),
    INDEX recurring_due (paused, next_fire, name),
    INDEX recurring_claimed (claimed_until)
) {table};

-- The parents that each job waits for, in the order given.
-- kind: 0 the parent is a job, 1 it is a batch. state: 0 open, 1 met, 2 unmet.
-- links_open: the children that still wait for a parent, which may have had very many children.
CREATE TABLE {schema}.links (
    child       BINARY(16) NOT NULL,
    parent      BINARY(16) NOT NULL,
    place       INT NOT NULL,
    kind        TINYINT NOT NULL,
    state       TINYINT NOT NULL DEFAULT 0,
    `condition` LONGTEXT NOT NULL,
    PRIMARY KEY (child, place),
    INDEX links_parent (parent, kind, child, place),
    INDEX links_open (parent, kind, state, child),
    CHECK (kind BETWEEN 0 AND 1),
    CHECK (state BETWEEN 0 AND 2)
) {table};

-- The batches with their counts; ended_at is NULL until a batch has ended. A call that counts
-- children locks the row, and then looks for the jobs that wait for the batch.
CREATE TABLE {schema}.batches (
    id         BINARY(16) NOT NULL,
    total      BIGINT NOT NULL DEFAULT 0,
    succeeded  BIGINT NOT NULL DEFAULT 0,
    failed     BIGINT NOT NULL DEFAULT 0,
    cancelled  BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT,
    closed     BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (id),
    INDEX batches_ended (ended_at, id)
) {table};

-- The children of batches, and whether their end was counted.
CREATE TABLE {schema}.batch_jobs (
    job     BINARY(16) NOT NULL,
    batch   BINARY(16) NOT NULL,
    counted BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (job),
    INDEX batch_jobs_batch (batch, job)
) {table};

-- The signals that jobs wait for.
-- state: 0 the job waits, 1 the signal was delivered, 2 the job has ended without it.
CREATE TABLE {schema}.signals (
    job          BINARY(16) NOT NULL,
    timeout      BIGINT NOT NULL,
    deadline     BIGINT NOT NULL,
    delivered_at BIGINT,
    state        TINYINT NOT NULL DEFAULT 0,
    `key`        VARCHAR(128) NOT NULL,
    payload      LONGTEXT,
    PRIMARY KEY (job),
    INDEX signals_key (`key`, state, job),
    INDEX signals_deadline (state, deadline, job),
    CHECK (state BETWEEN 0 AND 2)
) {table};

-- When jobs expire that have not begun. Only jobs with an expiry have a row.
-- The server has no partial indexes, so an index of the jobs would have an entry for every job.
-- closed: a pass has seen that the job has ended, so no pass looks at the row again.
CREATE TABLE {schema}.expiries (
    job        BINARY(16) NOT NULL,
    expires_at BIGINT NOT NULL,
    closed     BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (job),
    INDEX expiries_open (closed, expires_at, job)
) {table};

-- Archived finished jobs, each as one document; the other columns serve to find it. Only the
-- archive's own statements read or write this table.
CREATE TABLE {schema}.archive (
    id          BINARY(16) NOT NULL,
    finished_at BIGINT NOT NULL,
    archived_at BIGINT NOT NULL,
    state       TINYINT NOT NULL,
    queue       VARCHAR(128) NOT NULL,
    kind        VARCHAR(128) NOT NULL,
    document    LONGTEXT NOT NULL,
    PRIMARY KEY (id),
    INDEX archive_finished (finished_at, id)
) {table};
