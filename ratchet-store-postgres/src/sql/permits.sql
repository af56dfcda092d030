-- Permits, limits of fair keys, and rates.

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

-- name: set_fair_limit
-- Sets the limit of a scope. Changes no row if the limit is the same. [fair.limit.change] Primary
-- key.
INSERT INTO {schema}.fair_limits AS old (queue, fair_key, max_running) VALUES ($1, $2, $3)
ON CONFLICT (queue, fair_key) DO UPDATE SET max_running = excluded.max_running
WHERE old.max_running <> excluded.max_running

-- name: remove_fair_limit
-- Removes the limit of a scope. [fair.limit.change] Primary key.
DELETE FROM {schema}.fair_limits WHERE queue = $1 AND fair_key = $2

-- name: list_fair_limits
-- Returns the limits, in any order. [fair.limit.list] Reads the whole table.
SELECT queue, fair_key, max_running FROM {schema}.fair_limits

-- name: find_fair_limits
-- Returns the limits that may apply to these queues ($1) and keys ($2): all limits of each key of a
-- queue or pattern, and those of single keys. [fair.limit.max] fair_limits_each, and the primary
-- key.
SELECT queue, fair_key, max_running FROM {schema}.fair_limits WHERE fair_key = ''
UNION ALL
SELECT single.queue, single.fair_key, single.max_running
FROM unnest($1::text[], $2::text[]) AS wanted (queue, fair_key)
JOIN {schema}.fair_limits AS single
  ON single.queue = wanted.queue AND single.fair_key = wanted.fair_key

-- name: flag_limited
-- Marks the running jobs of these routes with a fair key, or with the key $2 unless it is empty, as
-- jobs whose key has a limit. [fair.limit.max] The caller keeps claims waiting. jobs_running: as
-- many rows as there are claims. Locked in order of id, as in every call.
UPDATE {schema}.jobs SET flags = flags | {limited}
WHERE id = ANY(ARRAY(
    SELECT id FROM {schema}.jobs
    WHERE state = 3 AND route = ANY($1::integer[]) AND fair_key IS NOT NULL
      AND ($2 = '' OR fair_key = $2) AND flags & {limited} = 0
    ORDER BY id
    FOR NO KEY UPDATE
)) AND state + 0 = 3

-- name: free_parked
-- Notes the keys of these routes, or only the key $2 unless it is empty, that have parked jobs.
-- [fair.limit.change] Reads the parked jobs of each level in jobs_turn.
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT fair.id, parked.fair_key
FROM unnest($1::integer[]) AS fair (id)
CROSS JOIN (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
    AS level (priority)
CROSS JOIN LATERAL (
    SELECT job.fair_key FROM {schema}.jobs AS job
    WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = fair.id
      AND job.priority = level.priority AND job.turn >= {parked}
      AND job.fair_key IS NOT NULL AND ($2 = '' OR job.fair_key = $2)
) AS parked

-- name: lock_limited
-- Locks, until the transaction ends, those of these routes for jobs with fair keys in whose queues
-- limits apply, or parked jobs may get turns. Leaves out paused queues. Returns each with whether
-- each key of its queue has a limit, and whether some keys have one. No other transaction then
-- claims jobs of these queues, or gives turns to their jobs, and the statements after it see the
-- claims that were made before. [fair.limit.max] [queue.pause] As in claim_jobs, the gate lets a
-- pause and a change of a limit wait for this transaction. The few routes, once, fair_limits_each
-- and primary keys. Locked in order of id, so that no two calls deadlock.
WITH gate AS MATERIALIZED (SELECT name FROM {schema}.pauses WHERE name = '' FOR KEY SHARE),
fair AS MATERIALIZED (
    SELECT route.id, route.queue,
           EXISTS (SELECT FROM {schema}.freed WHERE freed.route = route.id OFFSET 0) AS freed,
           EXISTS (SELECT FROM {schema}.fair_limits AS every
                   WHERE every.fair_key = ''
                     AND (every.queue = route.queue
                          OR (right(every.queue, 1) = '*'
                              AND starts_with(route.queue, left(every.queue, -1))))) AS every,
           EXISTS (SELECT FROM {schema}.fair_limits AS single
                   WHERE single.queue = route.queue AND single.fair_key <> '') AS single
    FROM {schema}.routes AS route
    WHERE route.id = ANY($1::integer[])
      AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
      AND NOT EXISTS (SELECT FROM gate)
)
SELECT route.id, fair.every, fair.single
FROM {schema}.routes AS route
JOIN fair ON fair.id = route.id
WHERE fair.queue IN (
    SELECT queue FROM fair AS one WHERE one.freed OR one.every OR one.single)
ORDER BY route.id
FOR NO KEY UPDATE OF route

-- name: take_freed
-- Deletes the oldest notes of these locked routes, at most $2, and returns them. [fair.limit.free]
-- Primary key.
DELETE FROM {schema}.freed
WHERE route = ANY($1::integer[]) AND id = ANY(ARRAY(
    SELECT id FROM {schema}.freed WHERE route = ANY($1::integer[]) ORDER BY id LIMIT $2))
RETURNING route, fair_key

-- name: keep_freed
-- Notes these keys of these routes again. [fair.limit.wait]
INSERT INTO {schema}.freed (route, fair_key)
SELECT kept.route, kept.fair_key
FROM unnest($1::integer[], $2::text[]) AS kept (route, fair_key)

-- name: count_limited
-- Counts the running jobs of each of these queues ($1) and keys ($2), in their order.
-- [fair.limit.max] [fair.limit.free] A claim runs this statement after the one that locks the
-- routes, so that it sees the claims that were made before. The few routes of each queue, and
-- jobs_limited: as many rows as such jobs run.
SELECT (
    SELECT coalesce(sum((
        SELECT count(*) FROM {schema}.jobs AS job
        WHERE job.state = 3 AND job.flags & {limited} <> 0 AND job.route = route.id
          AND job.fair_key = wanted.fair_key
    )), 0)::bigint
    FROM {schema}.routes AS route
    WHERE route.queue = wanted.queue AND route.fair
)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (queue, fair_key, place)
ORDER BY wanted.place

-- name: parked_levels
-- Returns the levels with parked jobs of each of these queues ($1) and keys ($2): the index of the
-- queue and key, the route and priority, the number of these jobs, at most $4, and the number of the
-- key's jobs that have turns and are not parked, at most $3. [fair.limit.free] [fair.limit.wait] Does
-- not count jobs that another transaction has locked, because it may be about to take their turns
-- away: then more jobs than places get turns, which is harmless. One seek of jobs_turn per level, and
-- a range of jobs_key per key and level with parked jobs.
WITH level AS MATERIALIZED (
    SELECT route.id AS route, route.queue, level.priority
    FROM {schema}.routes AS route
    CROSS JOIN (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
        AS level (priority)
    WHERE route.fair AND route.queue = ANY($1::text[])
      AND EXISTS (
          SELECT FROM {schema}.jobs AS job
          WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = route.id
            AND job.priority = level.priority AND job.turn >= {parked}
          OFFSET 0)
)
SELECT wanted.place - 1, level.route, level.priority, parked.jobs, ahead.jobs
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY
    AS wanted (queue, fair_key, ahead, place)
JOIN level ON level.queue = wanted.queue
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT FROM {schema}.jobs AS job
        WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = level.route
          AND job.priority = level.priority AND job.fair_key = wanted.fair_key
          AND job.turn >= {parked}
        LIMIT $4
    ) AS job
) AS parked
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT FROM {schema}.jobs AS job
        WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = level.route
          AND job.priority = level.priority AND job.fair_key = wanted.fair_key
          AND job.turn < {parked} AND parked.jobs > 0
        LIMIT wanted.ahead
        FOR SHARE SKIP LOCKED
    ) AS job
) AS ahead
WHERE parked.jobs > 0
ORDER BY wanted.place, level.priority DESC, level.route

-- name: first_parked
-- Returns the first parked jobs of these levels ($1 and $2: route and priority) and keys ($3), at
-- most $4 of each, with the index of the level and key and with their costs, and locks them. Skips
-- jobs that another transaction has locked. [fair.limit.free] A range of jobs_key each.
SELECT wanted.place - 1, parked.id, parked.fair_cost
FROM unnest($1::integer[], $2::smallint[], $3::text[], $4::bigint[]) WITH ORDINALITY
    AS wanted (route, priority, fair_key, most, place)
CROSS JOIN LATERAL (
    SELECT job.id, job.fair_cost, job.turn FROM {schema}.jobs AS job
    WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = wanted.route
      AND job.priority = wanted.priority AND job.fair_key = wanted.fair_key
      AND job.turn >= {parked}
    ORDER BY job.turn, job.id
    LIMIT wanted.most
    FOR NO KEY UPDATE SKIP LOCKED
) AS parked
ORDER BY wanted.place, parked.turn, parked.id

-- name: park_jobs
-- Undoes those claims of this transaction for whose keys no place is free, and parks the jobs with
-- these turns; no other transaction has seen them. [fair.limit.max] [fair.limit.others] Primary
-- key.
UPDATE {schema}.jobs AS job
SET state = 0, claim_seq = job.claim_seq - 1, turn = parked.turn
FROM unnest($1::uuid[], $2::bigint[]) AS parked (job, turn)
WHERE job.id = parked.job AND job.state + 0 = 3

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
