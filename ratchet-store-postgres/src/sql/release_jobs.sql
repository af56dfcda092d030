-- Lets jobs be claimed that wait for nothing any more. [link.release] [signal.deliver]
-- Primary key of jobs.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.jobs AS job SET state = 0, run_at = greatest(job.run_at, clock.now)
FROM clock
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 = 1
