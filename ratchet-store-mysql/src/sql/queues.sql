-- Queues and routes.

-- name: pause
-- Pauses a queue ($1 is 0) or a kind (1). A pause that exists stays as it is. [queue.pause]
-- [queue.again] Primary key.
BEGIN;
INSERT IGNORE INTO {schema}.pauses (scope, name, paused_at, paused_by, reason)
SELECT $1, $2, {now}, $3, $4;
SELECT ROW_COUNT();
COMMIT

-- name: resume
-- Resumes a queue or a kind. [queue.resume] [queue.again] Primary key.
DELETE FROM {schema}.pauses WHERE scope = $1 AND name = $2

-- name: pauses
-- Returns the pauses, in any order. [queue.pauses] [queue.list] Reads the whole, small table.
SELECT scope, name, paused_at, paused_by, reason FROM {schema}.pauses

-- name: count_jobs
-- Counts the jobs of each queue by state. [queue.list] Reads every entry of jobs_claim once: for
-- operators, not for loops.
SELECT route.queue, counted.state, counted.jobs
FROM (SELECT route, state, COUNT(*) AS jobs FROM {schema}.jobs FORCE INDEX (jobs_claim)
      GROUP BY route, state) AS counted
JOIN {schema}.routes AS route ON route.id = counted.route

-- name: due_routes
-- Returns the routes with jobs due within $1 milliseconds, whether their queue is paused, whether
-- their kind is, and how long the first job of each has been due; negative if it is not due yet.
-- [queue.due]
-- The first entry of jobs_claim for each route and priority; no cost per job.
SET @now = {now};
SELECT route.queue, route.kind, route.capability, route.permit,
       route.queue IN (SELECT name FROM {schema}.pauses WHERE scope = 0),
       route.kind IN (SELECT name FROM {schema}.pauses WHERE scope = 1),
       @now - head.run_at
FROM (
    SELECT due.id, MIN(due.run_at) AS run_at
    FROM (
        SELECT route.id,
               (SELECT job.run_at FROM {schema}.jobs AS job FORCE INDEX (jobs_claim)
                WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
                ORDER BY job.run_at, job.id LIMIT 1) AS run_at
        FROM {schema}.routes AS route
        CROSS JOIN {levels} AS level
        LIMIT 1000000
    ) AS due
    WHERE due.run_at <= @now + $1
    GROUP BY due.id
) AS head
STRAIGHT_JOIN {schema}.routes AS route FORCE INDEX (PRIMARY) ON route.id = head.id

-- name: count_due
-- Counts the due jobs of the queue $1, up to $2. [queue.depth] Reads as many entries of jobs_claim
-- as it counts, with one range per priority and route of the queue that has jobs. As in claim_jobs,
-- the statement writes the query that reads the ranges.
SET @now = {now}, @count = 0;
SELECT GROUP_CONCAT(CONCAT(
           '(SELECT 1 FROM {schema}.jobs FORCE INDEX (jobs_claim) WHERE state = 0 AND route = ',
           route.id, ' AND priority = ', level.priority, ' AND run_at <= ', @now, ' LIMIT $2)'
       ) SEPARATOR ' UNION ALL ') INTO @ranges
FROM {schema}.routes AS route
CROSS JOIN {levels} AS level
WHERE route.queue = $1 AND (
    SELECT job.run_at FROM {schema}.jobs AS job FORCE INDEX (jobs_claim)
    WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
    ORDER BY job.run_at, job.id LIMIT 1
) <= @now;
SET @search = CASE WHEN @ranges IS NULL THEN 'DO 0' ELSE CONCAT(
    'SELECT COUNT(*) INTO @count FROM (SELECT 1 FROM (', @ranges, ') AS ranged LIMIT $2) AS due') END;
PREPARE ratchet_search FROM @search;
EXECUTE ratchet_search;
DEALLOCATE PREPARE ratchet_search;
SELECT @count

-- name: add_route
-- Stores a new route, when its first job is enqueued. Fails with a duplicate key if another session
-- stored the route or used its id at the same time. A session can create the next id only when the
-- largest id is committed and visible to it. The stamp is calculated without floating-point
-- numbers: the server would store those with 17 digits, and larger ones as 10^17. $5 is whether the
-- jobs have fair keys; then also adds the row that is locked to give turns. Otherwise reports that
-- it changed nothing, after which the caller looks for the route once more.
BEGIN;
INSERT INTO {schema}.routes (id, queue, kind, capability, permit, stamp, fair)
SELECT COALESCE(MAX(id), 0) + 1, $1, $2, $3, $4,
       CAST(CONV(LEFT(MD5(CONCAT(UUID(), RAND())), 15), 16, 10) AS SIGNED), $5
FROM {schema}.routes;
INSERT IGNORE INTO {schema}.fair_routes (route)
SELECT added.id FROM (SELECT MAX(id) AS id FROM {schema}.routes) AS added WHERE $5;
COMMIT

-- name: load_routes
-- Returns the last route that the cache has read and the routes after it, with their stamps.
-- Primary key of routes.
SELECT id, stamp, queue, kind, capability, permit, fair FROM {schema}.routes WHERE id >= $1 ORDER BY id

-- name: find_routes
-- Returns the ids of the routes of a queue ($1; empty: any) and a kind ($2; empty: any).
-- [page.filter] [count.filter] Reads the few routes once.
SELECT id FROM {schema}.routes
WHERE (LENGTH($1) = 0 OR queue = $1) AND (LENGTH($2) = 0 OR kind = $2)

-- name: lost_routes
-- Returns the ids of missing routes that pending jobs name, and how many of the first 1,000 such
-- jobs name each. Missing ids are those after the last route, because ids have no gaps. Reads the
-- end of jobs_claim, 1,000 entries at most.
SET @last = (SELECT COALESCE(MAX(id), 0) FROM {schema}.routes);
SELECT lost.route, COUNT(*)
FROM (
    SELECT job.route FROM {schema}.jobs AS job FORCE INDEX (jobs_claim)
    WHERE job.state = 0 AND job.route > @last
    ORDER BY job.route, job.priority, job.run_at, job.id
    LIMIT 1000
) AS lost
GROUP BY lost.route
ORDER BY lost.route

-- name: await_claims
-- Waits for the claims in progress, and delays new ones until the transaction ends. [queue.pause]
SELECT id FROM {schema}.gates WHERE id = 1 FOR UPDATE
