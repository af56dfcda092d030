-- The unfinished jobs that have these unique keys. [requeue.key] Primary key of unique_keys.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
SELECT [key], job FROM {schema}.unique_keys
WHERE [key] IN (SELECT name FROM @wanted)
