-- Queues and routes.

-- name: pause
-- Pauses a queue ($1 is 0) or a kind (1). A pause that exists stays as it is. [queue.pause]
-- [queue.again] Primary key.
INSERT INTO {schema}.pauses (scope, name, paused_at, paused_by, reason)
SELECT $1::smallint, $2, {now}, $3, $4
ON CONFLICT (scope, name) DO NOTHING

-- name: resume
-- Resumes a queue or a kind. [queue.resume] [queue.again] Primary key.
DELETE FROM {schema}.pauses WHERE scope = $1::smallint AND name = $2

-- name: pauses
-- Returns the pauses, in any order. [queue.pauses] [queue.list] Reads the whole, small table.
SELECT scope, name, paused_at, paused_by, reason FROM {schema}.pauses

-- name: count_jobs
-- Counts the jobs of each queue by state. [queue.list]
-- Reads every row of jobs once: for operators, not for loops.
SELECT route.queue, counted.state, counted.jobs
FROM (SELECT route, state, count(*) AS jobs FROM {schema}.jobs GROUP BY route, state) AS counted
JOIN {schema}.routes AS route ON route.id = counted.route

-- name: due_routes
-- Returns the routes with jobs due within $1 milliseconds, whether their queue is paused, whether
-- their kind is, and how long the first job of each has been due; negative if it is not due yet.
-- [queue.due]
-- One seek of jobs_claim per route and priority; no cost per job.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT route.queue, route.kind, route.capability, route.permit,
       route.queue IN (SELECT name FROM {schema}.pauses WHERE scope = 0),
       route.kind IN (SELECT name FROM {schema}.pauses WHERE scope = 1),
       clock.now - head.run_at
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
          AND job.run_at <= clock.now + $1::bigint
        ORDER BY job.run_at, job.id
        LIMIT 1
    ) AS due
) AS head
WHERE head.run_at IS NOT NULL

-- name: count_due
-- Counts the due jobs of the queue $1, up to $2. [queue.depth] Reads as many entries of jobs_claim
-- as it counts, with one seek per priority and route of the queue.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT count(*) FROM (
    SELECT 1
    FROM clock
    CROSS JOIN {schema}.routes AS route
    CROSS JOIN (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
        AS level (priority)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM {schema}.jobs AS job
        WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
          AND job.run_at <= clock.now
        ORDER BY job.run_at, job.id
        LIMIT $2
    ) AS due
    WHERE route.queue = $1
    LIMIT $2
) AS counted

-- name: add_route
-- Stores a new route, when its first job is enqueued. Returns no row if another session stored the
-- route or used its id at the same time. A session can create the next id only when the largest id
-- is committed and visible to it.
INSERT INTO {schema}.routes (id, queue, kind, capability, permit, fair)
SELECT coalesce(max(id), 0) + 1, $1, $2, $3, $4, $5 FROM {schema}.routes
ON CONFLICT DO NOTHING
RETURNING id

-- name: load_routes
-- Returns the last route that the cache has read and the routes after it, with their stamps.
-- Primary key of routes.
SELECT id, stamp, queue, kind, capability, permit, fair FROM {schema}.routes WHERE id >= $1 ORDER BY id

-- name: find_routes
-- Returns the ids of the routes of a queue ($1; empty: any) and a kind ($2; empty: any).
-- [page.filter] [count.filter] Reads the few routes once.
SELECT id FROM {schema}.routes
WHERE ($1 = '' OR queue = $1) AND ($2 = '' OR kind = $2)

-- name: lost_routes
-- Returns the ids of missing routes that pending jobs name, and how many of the first 1,000 such
-- jobs name each. Missing ids are those after the last route, because ids have no gaps. Reads the
-- end of jobs_claim, 1,000 entries at most.
SELECT lost.route, count(*)
FROM (
    SELECT job.route FROM {schema}.jobs AS job
    WHERE job.state = 0 AND job.route > (SELECT coalesce(max(id), 0) FROM {schema}.routes)
    ORDER BY job.route, job.priority, job.run_at, job.id
    LIMIT 1000
) AS lost
GROUP BY lost.route
ORDER BY lost.route

-- name: await_claims
-- Waits for the claims in progress, and delays new ones until the transaction ends. [queue.pause]
-- Readers of the table and dumps do not wait for this lock.
LOCK TABLE {schema}.pauses IN EXCLUSIVE MODE

-- name: notify_queues
-- Sends one wakeup for each of these payloads when the transaction commits.
SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS wakeup (payload)
