-- Stores a recurring definition, unless there is one of its name. [recurring.create] Primary key of
-- recurring.
INSERT INTO {schema}.recurring (name, incarnation, revision, definition, next_fire, last_slot, paused,
                                declared, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name) DO NOTHING
