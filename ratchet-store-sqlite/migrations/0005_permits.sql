-- The permit is part of a route. A table is made anew for it, since SQLite cannot change what is
-- unique; the ids stay. '' is no permit.
CREATE TABLE ratchet_routes_with_permits (
    id         INTEGER PRIMARY KEY,
    queue      TEXT NOT NULL,
    kind       TEXT NOT NULL,
    capability TEXT NOT NULL DEFAULT '',
    permit     TEXT NOT NULL DEFAULT '',
    UNIQUE (queue, kind, capability, permit)
) STRICT;
INSERT INTO ratchet_routes_with_permits (id, queue, kind, capability)
SELECT id, queue, kind, capability FROM ratchet_routes;
DROP TABLE ratchet_routes;
ALTER TABLE ratchet_routes_with_permits RENAME TO ratchet_routes;

-- How many jobs that need a resource may run at once. Rows are never deleted: routes name them.
-- Nothing is kept of who holds a permit; that is who runs.
CREATE TABLE ratchet_permits (
    resource TEXT NOT NULL PRIMARY KEY,
    max_held INTEGER NOT NULL CHECK (max_held >= 0)
) STRICT, WITHOUT ROWID;

-- The theoretical arrival time of each rate's next start, in microseconds since 1970; a row whose
-- time has passed is as good as none.
CREATE TABLE ratchet_rates (
    key TEXT NOT NULL PRIMARY KEY,
    tat INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The running jobs, those somebody wants cancelled apart, by route: also to count the holders of
-- permits.
DROP INDEX ratchet_jobs_running;
CREATE INDEX ratchet_jobs_running ON ratchet_jobs (cancel_requested, route, id) WHERE state = 3;
