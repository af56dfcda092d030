-- The tokens of definitions, which nobody changes until the transaction ends; locked in the order of
-- their names. [recurring.stale] [recurring.slot] Primary key of recurring.
SELECT name, incarnation, revision
FROM {schema}.recurring
WHERE name = ANY($1::text[])
ORDER BY name
FOR UPDATE
