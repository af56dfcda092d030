-- The tokens of definitions, which nobody changes until the transaction ends. [recurring.stale]
-- [recurring.slot] Primary key of recurring. The rows are written as they were: that locks them
-- everywhere.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
UPDATE {schema}.recurring SET revision = revision
WHERE name IN (SELECT name FROM @wanted);
SELECT name, incarnation, revision
FROM {schema}.recurring
WHERE name IN (SELECT name FROM @wanted)
