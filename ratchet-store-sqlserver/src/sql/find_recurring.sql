-- A recurring definition. [recurring.get] Primary key of recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name = @P1
