-- Links between jobs, batches and signals. Three more bits of jobs.flags: 8 the job waits for others
-- or for a signal, 16 others were linked to it, 32 it is in a batch.

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

-- How the batches stand; no time of an end: they have not ended. Whoever counts children locks the
-- row, and looks for who waits for the batch after that.
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

-- Empty pages, so that plans made early use the indexes, as for the tables of the first migration.
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

ALTER TABLE {schema}.links ADD CONSTRAINT links_pkey PRIMARY KEY (child, place);
ALTER TABLE {schema}.batches ADD CONSTRAINT batches_pkey PRIMARY KEY (id);
ALTER TABLE {schema}.batch_jobs ADD CONSTRAINT batch_jobs_pkey PRIMARY KEY (job);
ALTER TABLE {schema}.signals ADD CONSTRAINT signals_pkey PRIMARY KEY (job);

-- The children of each parent.
CREATE INDEX links_parent ON {schema}.links (parent, child);
-- The ended batches, the longest ended first: for purges.
CREATE INDEX batches_ended ON {schema}.batches (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX batch_jobs_batch ON {schema}.batch_jobs (batch, job);
CREATE INDEX signals_key ON {schema}.signals (key, state, job);
-- The signals that are waited for, the first to be missed first.
CREATE INDEX signals_deadline ON {schema}.signals (deadline, job) WHERE state = 0;
