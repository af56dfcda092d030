-- Deletes finished jobs with all they left, but not their idempotency keys. Within a transaction; the
-- caller gives no more at once than there are locks for before a table is locked as a whole.
-- [delete.job] [purge.keys] [archive.move] [archive.keys] [link.kept] Primary keys; job_tags_of_job.
DECLARE @gone TABLE (id binary(16) NOT NULL PRIMARY KEY, flags smallint NOT NULL);
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
INSERT INTO @gone (id, flags)
SELECT job.id, job.flags FROM {schema}.jobs AS job
WHERE job.id IN (SELECT id FROM @wanted) AND job.state + 0 >= 4;
DELETE job
FROM @gone AS gone
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = gone.id;
DELETE data
FROM @gone AS gone
INNER LOOP JOIN {schema}.job_data AS data WITH (FORCESEEK, ROWLOCK) ON data.id = gone.id;
DELETE notes
FROM @gone AS gone
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = gone.id;
DELETE tagged
FROM @gone AS gone
INNER LOOP JOIN {schema}.job_tags AS tagged WITH (FORCESEEK, ROWLOCK) ON tagged.job = gone.id
WHERE gone.flags & 64 = 64;
DELETE link
FROM @gone AS gone
INNER LOOP JOIN {schema}.links AS link WITH (FORCESEEK, ROWLOCK) ON link.child = gone.id
WHERE gone.flags & 8 = 8;
DELETE signal
FROM @gone AS gone
INNER LOOP JOIN {schema}.signals AS signal WITH (FORCESEEK, ROWLOCK) ON signal.job = gone.id
WHERE gone.flags & 8 = 8;
DELETE member
FROM @gone AS gone
INNER LOOP JOIN {schema}.batch_jobs AS member WITH (FORCESEEK, ROWLOCK) ON member.job = gone.id
WHERE gone.flags & 32 = 32;
DELETE attempt
FROM @gone AS gone
INNER LOOP JOIN {schema}.attempts AS attempt WITH (FORCESEEK, ROWLOCK) ON attempt.job = gone.id;
SELECT id FROM @gone
