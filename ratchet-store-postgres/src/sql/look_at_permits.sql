-- Which of these routes, all of which need permits, have jobs that are due and a permit for one.
-- [permit.order] Locks nothing: who takes a permit looks again when it has the lock, and who leaves a
-- route out does so for what was the case during its call.
-- One seek of jobs_claim per route and priority; jobs_running: as many rows as are held.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT route.id
FROM clock
CROSS JOIN {schema}.routes AS route
JOIN {schema}.permits AS permit ON permit.resource = route.permit
WHERE route.id = ANY($1::integer[])
  AND route.queue NOT IN (SELECT queue FROM {schema}.paused_queues)
  AND EXISTS (
      SELECT
      FROM (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
          AS level (priority)
      CROSS JOIN LATERAL (
          SELECT FROM {schema}.jobs AS job
          WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
            AND job.run_at <= clock.now
          ORDER BY job.run_at, job.id
          LIMIT 1
      ) AS due
  )
  AND permit.max_held > (
      SELECT coalesce(sum((
          SELECT count(*) FROM {schema}.jobs AS job
          WHERE job.state = 3 AND job.route = other.id
      )), 0)::bigint
      FROM {schema}.routes AS other
      WHERE other.permit = permit.resource
  )
