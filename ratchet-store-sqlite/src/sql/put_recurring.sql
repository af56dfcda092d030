-- Stores a recurring definition as it has become. [recurring.create] [recurring.edit]
-- Primary key of ratchet_recurring.
INSERT INTO ratchet_recurring (name, incarnation, revision, definition, next_fire, last_slot, paused,
                               declared, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (name) DO UPDATE
SET incarnation = excluded.incarnation, revision = excluded.revision,
    definition = excluded.definition, next_fire = excluded.next_fire,
    last_slot = excluded.last_slot, paused = excluded.paused, declared = excluded.declared,
    created_at = excluded.created_at, claimed_by = NULL, claimed_until = NULL
