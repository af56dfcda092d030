-- The routes with due jobs, whether their queue is paused, and for how long the first job of each has
-- been due. [queue.due]
-- One seek of jobs_claim per route and priority; no cost per job.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT route.queue, route.kind, route.capability, route.permit,
       route.queue IN (SELECT queue FROM {schema}.paused_queues), clock.now - head.run_at
FROM clock
CROSS JOIN {schema}.routes AS route
CROSS JOIN LATERAL (
    SELECT min(due.run_at) AS run_at
    FROM (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
        AS level (priority)
    CROSS JOIN LATERAL (
        SELECT job.run_at
        FROM {schema}.jobs AS job
        WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
          AND job.run_at <= clock.now
        ORDER BY job.run_at, job.id
        LIMIT 1
    ) AS due
) AS head
WHERE head.run_at IS NOT NULL
