-- Makes dead letters pending, due now, as good as new. [requeue.fresh] Primary keys.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
fresh AS (
    UPDATE {schema}.jobs AS job
    SET state = 0, run_at = clock.now, attempts = 0, crash_count = 0, finished_at = NULL
    FROM clock
    WHERE job.id = ANY($1::uuid[]) AND job.state + 0 = 5
    RETURNING job.id
)
UPDATE {schema}.job_notes AS notes SET last_error = NULL FROM fresh WHERE notes.job = fresh.id
