-- Makes dead letters wait again in these states, due now, as good as new. Within a transaction.
-- [requeue.fresh] [lane.requeue] Primary keys.
DECLARE @now bigint = {now};
DECLARE @requeued TABLE (job binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL);
DECLARE @fresh TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @requeued (job, state)
SELECT CONVERT(binary(16), given.job, 2), given.state
FROM OPENJSON(@P1) WITH (job char(32), state smallint) AS given;
UPDATE {schema}.jobs
SET state = requeued.state, run_at = @now, attempts = 0, crash_count = 0, finished_at = NULL
OUTPUT inserted.id INTO @fresh
FROM @requeued AS requeued
WHERE jobs.id = requeued.job AND jobs.state = 5;
UPDATE {schema}.job_notes SET last_error = NULL WHERE job IN (SELECT id FROM @fresh)
