-- Keeps why jobs failed that nobody ran, which are locked. [signal.expire] Primary key of job_notes.
DECLARE @failed TABLE (job binary(16) NOT NULL PRIMARY KEY, error nvarchar(max) NULL);
INSERT INTO @failed (job, error)
SELECT CONVERT(binary(16), given.job, 2), {text given.error}
FROM OPENJSON(@P1) WITH (job char(32), error {long}) AS given;
UPDATE notes SET last_error = failed.error
FROM @failed AS failed
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = failed.job;
INSERT INTO {schema}.job_notes (job, last_error)
SELECT failed.job, failed.error FROM @failed AS failed
WHERE NOT EXISTS (SELECT 1 FROM {schema}.job_notes AS notes WHERE notes.job = failed.job)
