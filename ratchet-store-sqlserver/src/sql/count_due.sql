-- How many jobs of a queue (@P1) are due, counted up to @P2. [queue.depth]
-- Reads as many entries of jobs_claim, and one seek per route of the queue and priority.
DECLARE @now bigint = {now};
SELECT COUNT_BIG(*) FROM (
    SELECT TOP (@P2) due.id
    FROM {schema}.routes AS route
    CROSS JOIN (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
    CROSS APPLY (
        SELECT TOP (@P2) job.id
        FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
        WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
          AND job.run_at <= @now
        ORDER BY job.run_at, job.id
    ) AS due
    WHERE route.queue = @P1
) AS counted
