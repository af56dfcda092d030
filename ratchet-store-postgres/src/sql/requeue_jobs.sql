-- Makes dead letters wait again in these states, due now, as good as new.
-- [requeue.fresh] [lane.requeue] Primary keys.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
fresh AS (
    UPDATE {schema}.jobs AS job
    SET state = requeued.state, run_at = clock.now, attempts = 0, crash_count = 0, finished_at = NULL
    FROM unnest($1::uuid[], $2::smallint[]) AS requeued (job, state)
    CROSS JOIN clock
    WHERE job.id = requeued.job AND job.state + 0 = 5
    RETURNING job.id
)
UPDATE {schema}.job_notes AS notes SET last_error = NULL FROM fresh WHERE notes.job = fresh.id
