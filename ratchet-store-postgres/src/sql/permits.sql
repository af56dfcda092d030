-- Permits and rates.

-- name: set_permits
-- Sets the limit of a resource, and creates the resource if it is new. Changes no row if the limit
-- is the same, or if the resource exists and $3 is true (keep its limit). [permit.change]
-- [permit.declare] Waits for the claims that have locked the row. Primary key.
INSERT INTO {schema}.permits AS old (resource, max_held) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET max_held = excluded.max_held
WHERE old.max_held <> excluded.max_held AND NOT $3

-- name: held_permits
-- Returns the limits of these resources ($1, or all if $2) and how many running jobs hold a permit.
-- [permit.max] [permit.free] [permit.list] A claim runs this statement after the one that locks the
-- resources, so that it sees everything committed before the locks were acquired. Primary key; the
-- few routes, once; jobs_permits: as many rows as there are holders, because each route's count is
-- a separate subselect.
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
-- Returns which of these routes, all of which need permits, have due jobs and a free permit.
-- [permit.order] Locks nothing: a claim checks the permits again once it has locked them, and it
-- may skip a route that had no due job or free permit at any moment of its call. One seek of
-- jobs_claim per route and priority. Then, only for the resources of routes with due jobs, the few
-- routes, once, and jobs_permits: as many entries as there are holders.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
due AS MATERIALIZED (
    SELECT route.id, route.permit
    FROM clock CROSS JOIN {schema}.routes AS route
    WHERE route.id = ANY($1::integer[])
      AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
      AND route.kind NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
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
-- Locks these resources until the transaction ends: no other transaction claims jobs that need them
-- or changes their limits. Locks in order, so that no two claims deadlock. [permit.max]
-- [permit.change] Primary key.
SELECT resource FROM {schema}.permits WHERE resource = ANY($1::text[])
ORDER BY resource
FOR NO KEY UPDATE

-- name: find_permit
-- Returns a row if the resource exists. [permit.unknown] Primary key.
SELECT 1 FROM {schema}.permits WHERE resource = $1

-- name: take_rates
-- Takes one start for each of these distinct keys; $2 and $3 are the intervals and the tolerances
-- of their rates, in microseconds. [rate.exact] [rate.refill] [rate.keys] [rate.change] Implements
-- ratchet_core::rate::Rate::take in SQL, because a grant depends on concurrent calls. If a start is
-- refused, the key is written only if its time is later than this rate allows: its time becomes the
-- latest possible one. Otherwise the key is returned with NULL as the answer, and with its time
-- when the statement began. Primary key; in order of the keys, so that no two calls deadlock.
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
-- Deletes the keys whose time has passed, except those that another transaction has locked.
-- [rate.forget] Reads the table, which has a row for each key that was used since the last pass.
DELETE FROM {schema}.rates
WHERE key = ANY(ARRAY(
    SELECT key FROM {schema}.rates WHERE tat <= {now} * 1000
    LIMIT $1
    FOR UPDATE SKIP LOCKED
))
