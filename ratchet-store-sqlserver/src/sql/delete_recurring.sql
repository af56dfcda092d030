-- Deletes recurring definitions. [recurring.delete] [recurring.retire] Primary key of recurring.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
DELETE gone
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.recurring AS gone WITH (FORCESEEK, ROWLOCK) ON gone.name = wanted.name
