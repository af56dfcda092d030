-- Stores a recurring definition, which is locked, as it has become. [recurring.edit] [recurring.pause]
-- Primary key of recurring.
UPDATE {schema}.recurring
SET incarnation = $2, revision = $3, definition = $4, next_fire = $5, last_slot = $6, paused = $7,
    declared = $8, created_at = $9, claimed_by = NULL, claimed_until = NULL
WHERE name = $1
