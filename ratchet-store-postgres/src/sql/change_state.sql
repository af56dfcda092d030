-- Moves waiting jobs from one state to another; those that end lose their unique keys, and their
-- signals come too late (flags: 1 it has a key, 8 it waits for others or for a signal).
-- [act.respond] [cancel.waiting] [pause.job] [signal.late] Primary keys.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
moved AS (
    UPDATE {schema}.jobs AS job
    SET state = change.state, finished_at = CASE WHEN change.state >= 4 THEN clock.now END
    FROM unnest($1::uuid[], $2::smallint[]) AS change (job, state)
    CROSS JOIN clock
    WHERE job.id = change.job
    RETURNING job.id, job.state, job.flags
),
missed AS (
    UPDATE {schema}.signals AS signal SET state = 2
    FROM moved
    WHERE moved.flags & 8 = 8 AND moved.state >= 4 AND signal.job = moved.id AND signal.state = 0
)
DELETE FROM {schema}.unique_keys AS held
USING moved
WHERE moved.flags & 1 = 1 AND moved.state >= 4
  AND held.key = (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = moved.id)
  AND held.job = moved.id
