-- The permit is part of a route. '' is no permit.
ALTER TABLE {schema}.routes ADD COLUMN permit text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE {schema}.routes DROP CONSTRAINT routes_queue_kind_capability_key;
ALTER TABLE {schema}.routes ADD UNIQUE (queue, kind, capability, permit);

-- How many jobs that need a resource may run at once. Rows are never deleted: routes name them.
-- Nothing is kept of who holds a permit; that is who runs. Whoever claims jobs that need one locks
-- its row first.
CREATE TABLE {schema}.permits (
    resource text COLLATE "C" NOT NULL PRIMARY KEY,
    max_held bigint NOT NULL CHECK (max_held >= 0)
);

-- The theoretical arrival time of each rate's next start, in microseconds since 1970; a row whose
-- time has passed is as good as none. granted says what the last write of the row was for: a start,
-- or another rate that made the time an earlier one.
CREATE TABLE {schema}.rates (
    key     text COLLATE "C" NOT NULL PRIMARY KEY,
    tat     bigint NOT NULL,
    granted boolean NOT NULL
);
-- Written again and again in place.
ALTER TABLE {schema}.permits SET (fillfactor = 50);
ALTER TABLE {schema}.rates SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- The running jobs, by route: for reclaim and heartbeat, and to count the holders of permits.
DROP INDEX {schema}.jobs_running;
CREATE INDEX jobs_running ON {schema}.jobs (route, id) WHERE state = 3;
