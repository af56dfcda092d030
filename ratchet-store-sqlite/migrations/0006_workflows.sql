-- Links between jobs, batches and signals. Three more bits of ratchet_jobs.flags: 8 the job waits for
-- others or for a signal, 16 others were linked to it, 32 it is in a batch.

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
