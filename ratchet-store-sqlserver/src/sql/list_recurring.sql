-- One page of the recurring definitions. [recurring.list] Primary key of recurring.
SELECT TOP (@P2) name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name > @P1
ORDER BY name
