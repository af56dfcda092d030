-- Which of these routes, all of which need permits, have jobs that are due and a permit for one.
-- [permit.order] Locks nothing: who takes a permit looks again when it has the lock, and who leaves a
-- route out does so for what was the case during its call.
-- One seek of jobs_claim per route and priority; then, for the resources of those with due jobs only,
-- the routes, which are few, once, and jobs_permits: as many entries as are held.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
due AS MATERIALIZED (
    SELECT route.id, route.permit
    FROM clock CROSS JOIN {schema}.routes AS route
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
          ) AS head
      )
),
held AS MATERIALIZED (
    SELECT route.permit AS resource, sum((
        SELECT count(*) FROM {schema}.jobs AS job
        WHERE job.state = 3 AND job.flags & 128 <> 0 AND job.route = route.id
    ))::bigint AS held
    FROM {schema}.routes AS route
    WHERE route.permit = ANY(ARRAY(SELECT due.permit FROM due))
    GROUP BY route.permit
),
free AS MATERIALIZED (
    SELECT permit.resource FROM {schema}.permits AS permit
    LEFT JOIN held ON held.resource = permit.resource
    WHERE permit.resource = ANY(ARRAY(SELECT due.permit FROM due))
      AND permit.max_held > coalesce(held.held, 0)
)
SELECT due.id FROM due JOIN free ON free.resource = due.permit
