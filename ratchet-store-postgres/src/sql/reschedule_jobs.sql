-- Makes waiting jobs due at a time ($2), or so long from now ($3). [reschedule.job] [lane.reschedule]
-- Primary key of jobs.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.jobs AS job SET run_at = coalesce($2::bigint, clock.now + $3::bigint)
FROM clock
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 IN (0, 1, 2)
