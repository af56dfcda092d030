-- Recurring definitions, and the archive.

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

-- The definitions whose slots come, in that order.
CREATE INDEX recurring_due ON {schema}.recurring (next_fire, name)
WHERE paused = 0 AND next_fire IS NOT NULL;
-- The definitions that somebody has claimed.
CREATE INDEX recurring_claimed ON {schema}.recurring (claimed_until) WHERE claimed_until IS NOT NULL;
-- The archived jobs, the longest finished first.
CREATE INDEX archive_finished ON {schema}.archive (finished_at, id);

IF SERVERPROPERTY('BabelfishVersion') IS NULL
BEGIN
    EXEC(N'ALTER TABLE {schema_in_text}.recurring SET (LOCK_ESCALATION = DISABLE)');
    EXEC(N'ALTER TABLE {schema_in_text}.archive SET (LOCK_ESCALATION = DISABLE)');
END;
