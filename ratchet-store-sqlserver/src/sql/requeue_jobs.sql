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
FROM @requeued AS requeued{seek jobs}
WHERE jobs.id = requeued.job AND jobs.state + 0 = 5
OPTION (FORCE ORDER, LOOP JOIN);
UPDATE notes SET last_error = NULL
FROM @fresh AS fresh
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = fresh.id
