-- The versions of namespaces that have one. [version.read] Primary key of versions.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
SELECT namespace, version FROM {schema}.versions
WHERE namespace IN (SELECT name FROM @wanted)
