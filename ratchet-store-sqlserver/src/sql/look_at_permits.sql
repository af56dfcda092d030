-- Which of these routes, all of which need permits, have jobs that are due and a permit for one.
-- [permit.order] Locks nothing: who takes a permit looks again when it has the lock, and who leaves a
-- route out does so for what was the case during its call.
-- One seek of jobs_claim per route and priority; then, for the resources of those with due jobs only,
-- the routes, which are few, and jobs_permits: as many entries as are held.
DECLARE @now bigint = {now};
SELECT route.id
FROM {schema}.routes AS route
JOIN {schema}.permits AS permit ON permit.resource = route.permit
WHERE route.id IN (SELECT CONVERT(int, value) FROM OPENJSON(@P1))
  AND route.queue NOT IN (SELECT queue FROM {schema}.paused_queues)
  AND EXISTS (
      SELECT 1
      FROM (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
      CROSS APPLY (
          SELECT TOP (1) job.id FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
          WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
            AND job.run_at <= @now
          ORDER BY job.run_at, job.id
      ) AS head
  )
  AND permit.max_held > (
      SELECT COUNT_BIG(*) FROM {schema}.routes AS other
      JOIN {schema}.jobs AS job ON job.state = 3 AND job.route = other.id
      WHERE other.permit = permit.resource
  )
