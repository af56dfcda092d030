-- Queues and routes.

-- name: pause
-- Pauses a queue (@P1 is 0) or a kind (1). A pause that exists stays as it is. Waits for the claims
-- in progress, and delays new ones until the pause is committed. Returns whether the pause is new.
-- [queue.pause] [queue.again] Primary key.
DECLARE @now bigint = {now};
DECLARE @got int;
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = {claims}, @LockMode = 'Exclusive',
                          @LockOwner = 'Transaction', @LockTimeout = {lock_timeout};
IF @got < 0 THROW 50001, N'the claims that are going on take too long', 1;
INSERT INTO {schema}.pauses (scope, name, paused_at, paused_by, reason)
SELECT @P1, @P2, @now, @P3, @P4
WHERE NOT EXISTS (SELECT 1 FROM {schema}.pauses WHERE scope = @P1 AND name = @P2);
SELECT @@ROWCOUNT;
COMMIT TRANSACTION

-- name: resume
-- Resumes a queue or a kind. [queue.resume] [queue.again] Primary key.
DELETE FROM {schema}.pauses WHERE scope = @P1 AND name = @P2

-- name: pauses
-- Returns the pauses, in any order. [queue.pauses] [queue.list] Reads the whole, small table.
SELECT scope, name, paused_at, paused_by, reason FROM {schema}.pauses

-- name: count_jobs
-- Counts the jobs of each queue by state. [queue.list] Reads every row of jobs once: for operators,
-- not for loops.
SELECT route.queue, counted.state, counted.jobs
FROM (SELECT route, state, COUNT_BIG(*) AS jobs FROM {schema}.jobs GROUP BY route, state) AS counted
JOIN {schema}.routes AS route ON route.id = counted.route

-- name: due_routes
-- Returns the routes with jobs due within @P1 milliseconds, whether their queue is paused (1),
-- whether their kind is, and how long the first job of each has been due; negative if it is not due
-- yet. [queue.due] One seek of jobs_claim per route and priority; no cost per job.
DECLARE @now bigint = {now};
DECLARE @until bigint = @now + @P1;
SELECT route.queue, route.kind, route.capability, route.permit,
       CASE WHEN route.queue IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
            THEN 1 ELSE 0 END,
       CASE WHEN route.kind IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
            THEN 1 ELSE 0 END,
       @now - head.run_at
FROM {schema}.routes AS route
CROSS APPLY (
    SELECT MIN(due.run_at) AS run_at
    FROM (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
    CROSS APPLY (
        SELECT TOP (1) job.run_at
        FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
        WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
          AND job.run_at <= @until
        ORDER BY job.run_at, job.id
    ) AS due
) AS head
WHERE head.run_at IS NOT NULL

-- name: count_due
-- Counts the due jobs of the queue @P1, up to @P2. [queue.depth] Reads as many entries of
-- jobs_claim as it counts, with one seek per priority and route of the queue.
DECLARE @now bigint = {now};
SELECT COUNT_BIG(*) FROM (
    SELECT TOP (@P2) due.id
    FROM {schema}.routes AS route
    CROSS JOIN (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
    CROSS APPLY (
        SELECT TOP (@P2) job.id
        FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
        WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
          AND job.run_at <= @now
        ORDER BY job.run_at, job.id
    ) AS due
    WHERE route.queue = @P1
) AS counted

-- name: add_route
-- Stores a new route, when its first job is enqueued. Fails with a duplicate key if another session
-- stored the route or used its id at the same time. A session can create the next id only when the
-- largest id is committed and visible to it.
INSERT INTO {schema}.routes (id, queue, kind, capability, permit)
SELECT COALESCE(MAX(id), 0) + 1, @P1, @P2, @P3, @P4 FROM {schema}.routes

-- name: load_routes
-- Returns the last route that the cache has read and the routes after it, with their stamps.
-- Primary key of routes.
SELECT id, stamp, queue, kind, capability, permit FROM {schema}.routes WHERE id >= @P1 ORDER BY id

-- name: find_routes
-- Returns the ids of the routes of a queue (@P1; empty: any) and a kind (@P2; empty: any).
-- [page.filter] [count.filter] Reads the few routes once.
SELECT id FROM {schema}.routes
WHERE (@P1 = N'' OR queue = @P1) AND (@P2 = N'' OR kind = @P2)

-- name: lost_routes
-- Returns the ids of missing routes that pending jobs name, and how many of the first 1,000 such
-- jobs name each. Missing ids are those after the last route, because ids have no gaps. Reads the
-- end of jobs_claim, 1,000 entries at most.
SELECT lost.route, COUNT_BIG(*)
FROM (
    SELECT TOP (1000) job.route FROM {schema}.jobs AS job WITH (INDEX(jobs_claim))
    WHERE job.state = 0 AND job.route > (SELECT COALESCE(MAX(id), 0) FROM {schema}.routes)
    ORDER BY job.route, job.priority, job.run_at, job.id
) AS lost
GROUP BY lost.route
ORDER BY lost.route
