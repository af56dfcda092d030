-- A recurring definition. [recurring.get] Primary key of ratchet_recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM ratchet_recurring
WHERE name = ?1
