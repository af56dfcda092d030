-- A recurring definition, which nobody changes until the transaction ends. [recurring.edit]
-- [recurring.pause] Primary key of recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name = $1
FOR UPDATE
