-- Archived jobs. [archive.get] Primary key of archive.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT id, archived_at, document FROM {schema}.archive
WHERE id IN (SELECT id FROM @wanted)
