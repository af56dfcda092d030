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
SELECT coalesce(counted.queue, route.queue), counted.state, counted.jobs
FROM (
    SELECT route, queue, state, count(*) AS jobs FROM {schema}.jobs GROUP BY route, queue, state
) AS counted
JOIN {schema}.routes AS route ON route.id = counted.route

-- name: due_routes
-- Returns the routes with jobs due within $1 milliseconds, whether their queue is paused, whether
-- their kind is, and how long the first job of each has been due; negative if it is not due yet.
-- [queue.due]
-- One seek of jobs_claim per own route and priority; of jobs_queue one per shared queue that has
-- pending jobs, and one more per priority. No cost per job.
WITH RECURSIVE clock AS MATERIALIZED (SELECT {now} AS now),
shared (queue, route) AS (
    (SELECT job.queue, job.route FROM {schema}.jobs AS job
     WHERE job.state + 0 = 0 AND job.queue IS NOT NULL
     ORDER BY job.queue, job.route LIMIT 1)
    UNION ALL
    SELECT next.queue, next.route
    FROM shared
    CROSS JOIN LATERAL (
        SELECT job.queue, job.route FROM {schema}.jobs AS job
        WHERE job.state + 0 = 0 AND job.queue IS NOT NULL
          AND (job.queue, job.route) > (shared.queue, shared.route)
        ORDER BY job.queue, job.route LIMIT 1
    ) AS next
),
level (priority) AS (
    VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint)
),
head AS (
    SELECT route.queue, route.kind, route.capability, route.permit, due.run_at
    FROM clock
    CROSS JOIN {schema}.routes AS route
    CROSS JOIN LATERAL (
        SELECT min(due.run_at) AS run_at
        FROM level
        CROSS JOIN LATERAL (
            SELECT job.run_at
            FROM {schema}.jobs AS job
            WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
              AND job.run_at <= clock.now + $1::bigint
            ORDER BY job.run_at, job.id
            LIMIT 1
        ) AS due
    ) AS due
    WHERE route.queue <> ''
    UNION ALL
    SELECT shared.queue, route.kind, route.capability, route.permit, due.run_at
    FROM clock
    CROSS JOIN shared
    JOIN {schema}.routes AS route ON route.id = shared.route
    CROSS JOIN LATERAL (
        SELECT min(due.run_at) AS run_at
        FROM level
        CROSS JOIN LATERAL (
            SELECT job.run_at
            FROM {schema}.jobs AS job
            WHERE job.state + 0 = 0 AND job.queue IS NOT NULL AND job.queue = shared.queue
              AND job.route = shared.route AND job.priority = level.priority
              AND job.run_at <= clock.now + $1::bigint
            ORDER BY job.run_at, job.id
            LIMIT 1
        ) AS due
    ) AS due
)
SELECT head.queue, head.kind, head.capability, head.permit,
       head.queue IN (SELECT name FROM {schema}.pauses WHERE scope = 0),
       head.kind IN (SELECT name FROM {schema}.pauses WHERE scope = 1),
       clock.now - head.run_at
FROM clock CROSS JOIN head
WHERE head.run_at IS NOT NULL

-- name: count_due
-- Counts the due jobs of the queue $1, up to $2. [queue.depth] Reads as many entries of jobs_claim
-- or jobs_queue as it counts, with one seek per priority and route of the queue or shared route.
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
    UNION ALL
    SELECT 1
    FROM clock
    CROSS JOIN {schema}.routes AS route
    CROSS JOIN (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
        AS level (priority)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM {schema}.jobs AS job
        WHERE job.state + 0 = 0 AND job.queue IS NOT NULL AND job.queue = $1 AND job.route = route.id
          AND job.priority = level.priority AND job.run_at <= clock.now
        ORDER BY job.run_at, job.id
        LIMIT $2
    ) AS due
    WHERE route.queue = ''
    LIMIT $2
) AS counted

-- name: misplaced_jobs
-- Returns the shared routes in which paused and marked queues have pending jobs, each with the
-- texts of the route that the jobs must get. [queue.separate] One seek of jobs_queue for each of
-- these queues and shared route.
SELECT route.id, wanted.queue, route.kind, route.capability, route.permit
FROM (
    SELECT name AS queue FROM {schema}.pauses WHERE scope = 0
    UNION
    SELECT queue FROM {schema}.routes WHERE kind = ''
) AS wanted
CROSS JOIN {schema}.routes AS route
CROSS JOIN LATERAL (
    SELECT FROM {schema}.jobs AS job
    WHERE job.state + 0 = 0 AND job.queue IS NOT NULL AND job.queue = wanted.queue
      AND job.route = route.id
    LIMIT 1
) AS job
WHERE route.queue = ''

-- name: move_jobs
-- Moves up to $5 pending jobs of the queue $1 from the shared route $2 to the queue's own route $3.
-- Moves nothing if that route is missing or has another stamp than $4. [queue.separate] A claim has
-- either seen a job before the move, and then skips it, or sees it afterwards. Skips jobs that
-- another transaction has locked. A range of jobs_queue, and the primary key.
UPDATE {schema}.jobs AS job SET route = $3, queue = NULL
WHERE job.id = ANY(ARRAY(
    SELECT found.id FROM {schema}.jobs AS found
    WHERE found.state + 0 = 0 AND found.queue IS NOT NULL AND found.queue = $1 AND found.route = $2
      AND EXISTS (SELECT FROM {schema}.routes WHERE id = $3 AND stamp = $4)
    LIMIT $5
    FOR NO KEY UPDATE SKIP LOCKED
)) AND job.state + 0 = 0

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
-- Returns the ids of the routes of a queue ($1; empty: any) and a kind ($2; empty: any), and of the
-- shared routes of the kind. [page.filter] [count.filter] Reads the few routes once.
SELECT id FROM {schema}.routes
WHERE ($1 = '' OR queue IN ($1, '')) AND ($2 = '' OR kind = $2)

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
