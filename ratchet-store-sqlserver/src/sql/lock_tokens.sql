-- The tokens of definitions, which nobody changes until the transaction ends. [recurring.stale]
-- [recurring.slot] Primary key of recurring. The rows are written as they were: that locks them
-- everywhere.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
UPDATE held SET revision = held.revision
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, ROWLOCK) ON held.name = wanted.name;
SELECT held.name, held.incarnation, held.revision
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON held.name = wanted.name
