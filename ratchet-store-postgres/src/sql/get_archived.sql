-- Archived jobs. [archive.get] Primary key of archive.
SELECT id, archived_at, document FROM {schema}.archive WHERE id = ANY($1::uuid[])
