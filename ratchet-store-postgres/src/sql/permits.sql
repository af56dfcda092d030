-- Permits and rates.

-- name: set_permits
-- Sets how many permits a resource has, which makes it known; no row changes if it has that many, or if
-- it is known and keeps its number ($3). [permit.change] [permit.declare] Waits for the claims that hold the row. Primary key.
INSERT INTO {schema}.permits AS old (resource, max_held) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET max_held = excluded.max_held
WHERE old.max_held <> excluded.max_held AND NOT $3

-- name: held_permits
-- How many permits these resources ($1, or all if $2) have and how many running jobs hold one of them.
-- [permit.max] [permit.free] [permit.list]
-- In a claim, a statement of its own after the one that locks the resources: it sees what was
-- committed until then. Primary key; the routes, which are few, once; jobs_permits: as many rows as
-- are held, since the count of each route is a subselect of its own.
WITH held AS MATERIALIZED (
    SELECT route.permit AS resource, sum((
        SELECT count(*) FROM {schema}.jobs AS job
        WHERE job.state = 3 AND job.flags & {permit} <> 0 AND job.route = route.id
    ))::bigint AS held
    FROM {schema}.routes AS route
    WHERE route.permit <> '' AND ($2 OR route.permit = ANY($1::text[]))
    GROUP BY route.permit
)
SELECT permit.resource, permit.max_held, coalesce(held.held, 0)
FROM {schema}.permits AS permit
LEFT JOIN held ON held.resource = permit.resource
WHERE $2 OR permit.resource = ANY($1::text[])
ORDER BY permit.resource

-- name: look_at_permits
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
        WHERE job.state = 3 AND job.flags & {permit} <> 0 AND job.route = route.id
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

-- name: lock_permits
-- Keeps others from claiming jobs that need these resources, and from changing how many may run, until the
-- transaction ends; in order, so that no two claims wait for each other. [permit.max] [permit.change]
-- Primary key.
SELECT resource FROM {schema}.permits WHERE resource = ANY($1::text[])
ORDER BY resource
FOR NO KEY UPDATE

-- name: find_permit
-- A row if the resource is known. [permit.unknown] Primary key.
SELECT 1 FROM {schema}.permits WHERE resource = $1

-- name: take_rates
-- Asks for one start of each of these keys, which are distinct; $2 and $3 are the intervals and the
-- tolerances of their rates, in microseconds. [rate.exact] [rate.refill] [rate.keys] [rate.change]
-- What ratchet_core::rate::Rate::take says, here because whether a start is granted depends on who
-- came before in the same moment. A key that is refused is not written, unless its time is later than
-- this rate can make it, and comes back without an answer but with its time as it was when the
-- statement began. Primary key; in order of the keys, so that no two calls wait for each other.
WITH clock AS MATERIALIZED (SELECT {now} * 1000 AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
    AS wanted (key, interval, tolerance)
),
taken AS (
    INSERT INTO {schema}.rates AS rate (key, tat, granted)
    SELECT wanted.key, clock.now + wanted.interval, true
    FROM wanted CROSS JOIN clock
    ORDER BY wanted.key COLLATE "C"
    ON CONFLICT (key) DO UPDATE
    SET tat = CASE
            WHEN rate.tat - (SELECT now FROM clock)
                 <= (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
            THEN greatest(rate.tat + excluded.tat - (SELECT now FROM clock), excluded.tat)
            ELSE excluded.tat + (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
        END,
        granted = rate.tat - (SELECT now FROM clock)
                  <= (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
    WHERE rate.tat - (SELECT now FROM clock)
          <= (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
       OR rate.tat > excluded.tat
                     + (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
    RETURNING rate.key, rate.granted
)
SELECT wanted.key, taken.granted, known.tat, clock.now
FROM wanted
CROSS JOIN clock
LEFT JOIN taken ON taken.key = wanted.key
LEFT JOIN {schema}.rates AS known ON known.key = wanted.key

-- name: forget_rates
-- Forgets the keys whose time has passed, but for those that another transaction is using. [rate.forget]
-- Reads the table, which has a row for each key that was used since the last pass.
DELETE FROM {schema}.rates
WHERE key = ANY(ARRAY(
    SELECT key FROM {schema}.rates WHERE tat <= {now} * 1000
    LIMIT $1
    FOR UPDATE SKIP LOCKED
))
