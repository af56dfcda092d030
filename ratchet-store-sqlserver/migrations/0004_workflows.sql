-- Links between jobs, batches and signals.

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

-- How the batches stand; no time of an end: they have not ended. Whoever counts children locks the
-- row, and looks for who waits for the batch after that.
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

IF SERVERPROPERTY('BabelfishVersion') IS NULL
BEGIN
    EXEC(N'ALTER TABLE {schema_in_text}.links SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.batches SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.batch_jobs SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.signals SET (LOCK_ESCALATION = DISABLE)');
END;
