-- The tokens of definitions, which nobody changes until the transaction ends. [recurring.stale]
-- [recurring.slot] Primary key of recurring. The rows are written as they were: that locks them
-- everywhere.
UPDATE {schema}.recurring SET revision = revision
WHERE name IN (SELECT {name value} FROM OPENJSON(@P1));
SELECT name, incarnation, revision
FROM {schema}.recurring
WHERE name IN (SELECT {name value} FROM OPENJSON(@P1))
