-- Recurring definitions, and which of them made a job.

-- definition: JSON; schedule, bounds, policies and what its jobs have in common.
-- revision: grows with every change, claim and firing. claimed_until: others leave it alone until then.
CREATE TABLE ratchet_recurring (
    name          TEXT NOT NULL PRIMARY KEY,
    incarnation   BLOB NOT NULL CHECK (length(incarnation) = 16),
    revision      INTEGER NOT NULL,
    definition    TEXT NOT NULL,
    next_fire     INTEGER,
    last_slot     INTEGER,
    paused        INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    declared      INTEGER NOT NULL DEFAULT 0 CHECK (declared IN (0, 1)),
    created_at    INTEGER NOT NULL,
    claimed_by    BLOB CHECK (length(claimed_by) = 16),
    claimed_until INTEGER
) STRICT, WITHOUT ROWID;

-- The definitions whose slots come, in that order.
CREATE INDEX ratchet_recurring_due ON ratchet_recurring (next_fire, name)
WHERE paused = 0 AND next_fire IS NOT NULL;

-- The definition that made the job, and the slot; a job made out of turn has no slot.
ALTER TABLE ratchet_job_data ADD COLUMN recurring TEXT;
ALTER TABLE ratchet_job_data ADD COLUMN slot INTEGER;
