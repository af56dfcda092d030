-- Permits and rates.

-- How many jobs that need a resource may run at once. Rows are never deleted: routes name them.
-- Nothing is kept of who holds a permit; that is who runs. Whoever claims jobs that need one locks
-- its row first.
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

IF SERVERPROPERTY('BabelfishVersion') IS NULL
    EXEC(N'ALTER TABLE {schema_in_text}.rates SET (LOCK_ESCALATION = DISABLE)');
