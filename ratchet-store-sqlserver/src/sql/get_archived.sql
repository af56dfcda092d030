-- Archived jobs. [archive.get] Primary key of archive.
SELECT id, archived_at, document FROM {schema}.archive
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
