-- Deletes finished jobs with all they left, but not their idempotency keys. Within a transaction; the
-- caller gives no more at once than there are locks for before a table is locked as a whole.
-- [delete.job] [purge.keys] [archive.move] [archive.keys] [link.kept] Primary keys; job_tags_of_job.
DECLARE @gone TABLE (id binary(16) NOT NULL PRIMARY KEY, flags smallint NOT NULL);
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
INSERT INTO @gone (id, flags)
SELECT id, flags FROM {schema}.jobs
WHERE id IN (SELECT id FROM @wanted) AND state >= 4;
DELETE FROM {schema}.jobs WHERE id IN (SELECT id FROM @gone);
DELETE FROM {schema}.job_data WHERE id IN (SELECT id FROM @gone);
DELETE FROM {schema}.job_notes WHERE job IN (SELECT id FROM @gone);
DELETE FROM {schema}.job_tags WHERE job IN (SELECT id FROM @gone WHERE flags & 64 = 64);
DELETE FROM {schema}.links WHERE child IN (SELECT id FROM @gone WHERE flags & 8 = 8);
DELETE FROM {schema}.signals WHERE job IN (SELECT id FROM @gone WHERE flags & 8 = 8);
DELETE FROM {schema}.batch_jobs WHERE job IN (SELECT id FROM @gone WHERE flags & 32 = 32);
DELETE FROM {schema}.attempts WHERE job IN (SELECT id FROM @gone);
SELECT id FROM @gone
