-- How many jobs of a queue ($1) are due, counted up to $2. [queue.depth]
-- Reads as many entries of jobs_claim, and one seek per route of the queue and priority.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT count(*) FROM (
    SELECT 1
    FROM clock
    CROSS JOIN {schema}.routes AS route
    CROSS JOIN (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
        AS level (priority)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM {schema}.jobs AS job
        WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
          AND job.run_at <= clock.now
        ORDER BY job.run_at, job.id
        LIMIT $2
    ) AS due
    WHERE route.queue = $1
    LIMIT $2
) AS counted
