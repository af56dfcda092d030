-- Moves a definition on, if the token is the present one. [recurring.fire] [recurring.stale]
-- Primary key of ratchet_recurring.
UPDATE ratchet_recurring
SET revision = revision + 1, next_fire = ?4, last_slot = coalesce(max(last_slot, ?5), last_slot, ?5),
    claimed_by = NULL, claimed_until = NULL
WHERE name = ?1 AND incarnation = ?2 AND revision = ?3
