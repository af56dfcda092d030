-- The routes with due jobs, whether their queue is paused, and when the first job of each became due.
-- [queue.due] One seek of ratchet_jobs_claim per route and priority; no cost per job.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0)),
head (route, queue, run_at) AS (
    SELECT route.id, route.queue,
           (SELECT job.run_at FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_claim
            WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
              AND job.run_at <= ?1
            ORDER BY job.run_at, job.id
            LIMIT 1)
    FROM ratchet_routes AS route
    CROSS JOIN level)
SELECT route, queue IN (SELECT queue FROM ratchet_paused_queues), min(run_at)
FROM head
WHERE run_at IS NOT NULL
GROUP BY route
