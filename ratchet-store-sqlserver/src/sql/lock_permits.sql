-- Lets nobody else claim jobs that need these resources, nor change how many may, until the
-- transaction ends. [permit.max] [permit.change] Primary key. The rows are written as they were: that
-- locks them everywhere.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
UPDATE held SET max_held = held.max_held
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.permits AS held WITH (FORCESEEK, ROWLOCK) ON held.resource = wanted.name;
SELECT held.resource
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.permits AS held WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON held.resource = wanted.name
