-- Stores a recurring definition, which is locked, as it has become. [recurring.edit] [recurring.pause]
-- Primary key of recurring.
UPDATE {schema}.recurring
SET incarnation = CONVERT(binary(16), @P2), revision = @P3, definition = @P4, next_fire = @P5,
    last_slot = @P6, paused = @P7, declared = @P8, created_at = @P9, claimed_by = NULL,
    claimed_until = NULL
WHERE name = @P1
