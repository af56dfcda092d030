-- The routes with due jobs, whether their queue is paused (1), and for how long the first job of each has
-- been due. [queue.due]
-- One seek of jobs_claim per route and priority; no cost per job.
DECLARE @now bigint = {now};
SELECT route.queue, route.kind, route.capability, route.permit,
       CASE WHEN paused.queue IS NULL THEN 0 ELSE 1 END, @now - head.run_at
FROM {schema}.routes AS route
CROSS APPLY (
    SELECT MIN(due.run_at) AS run_at
    FROM (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
    CROSS APPLY (
        SELECT TOP (1) job.run_at
        FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
        WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
          AND job.run_at <= @now
        ORDER BY job.run_at, job.id
    ) AS due
) AS head
LEFT JOIN {schema}.paused_queues AS paused ON paused.queue = route.queue
WHERE head.run_at IS NOT NULL
