-- Recurring definitions, and which of them made a job.

-- definition: JSON; schedule, bounds, policies and what its jobs have in common.
-- revision: grows with every change, claim and firing. claimed_until: others leave it alone until then.
CREATE TABLE {schema}.recurring (
    name          text COLLATE "C" NOT NULL PRIMARY KEY,
    incarnation   uuid NOT NULL,
    revision      bigint NOT NULL,
    definition    text NOT NULL,
    next_fire     bigint,
    last_slot     bigint,
    paused        boolean NOT NULL DEFAULT false,
    declared      boolean NOT NULL DEFAULT false,
    created_at    bigint NOT NULL,
    claimed_by    uuid,
    claimed_until bigint
);
-- Few rows, changed all the time: they stay on their page if it has room.
ALTER TABLE {schema}.recurring SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
-- The definitions whose slots come, in that order.
CREATE INDEX recurring_due ON {schema}.recurring (next_fire, name)
WHERE NOT paused AND next_fire IS NOT NULL;

-- The definition that made the job, and the slot; a job made out of turn has no slot.
ALTER TABLE {schema}.job_data ADD COLUMN recurring text;
ALTER TABLE {schema}.job_data ADD COLUMN slot bigint;
