-- Queues and routes.

-- name: pause
-- Pauses a queue (?1 is 0) or a kind (1). A pause that exists stays as it is. [queue.pause]
-- [queue.again] Uses the primary key.
INSERT INTO ratchet_pauses (scope, name, paused_at, paused_by, reason) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (scope, name) DO NOTHING

-- name: resume
-- Resumes a queue or a kind. [queue.resume] [queue.again] Uses the primary key.
DELETE FROM ratchet_pauses WHERE scope = ?1 AND name = ?2

-- name: pauses
-- Returns the pauses, in any order. [queue.pauses] [queue.list] Reads the whole table, which is
-- small.
SELECT scope, name, paused_at, paused_by, reason FROM ratchet_pauses

-- name: count_jobs
-- Counts the jobs of each route and shared queue by state. [queue.list] Reads every row of
-- ratchet_jobs once: only operators use it, not the loops of nodes.
SELECT route, queue, state, count(*) FROM ratchet_jobs GROUP BY route, queue, state

-- name: due_routes
-- Returns the routes with jobs that are due by ?1, whether their queue is paused, whether their
-- kind is, and when the first job of each is due, with the queue if it is shared. [queue.due] Needs
-- one seek of ratchet_jobs_claim per own route and priority, and of ratchet_jobs_queue for each
-- shared queue that has pending jobs, at no cost per job. A step from one shared queue to the next
-- is one seek, too.
WITH RECURSIVE level (priority) AS (VALUES (4), (3), (2), (1), (0)),
shared (queue, route) AS (
    SELECT * FROM (
        SELECT queue, route FROM ratchet_jobs INDEXED BY ratchet_jobs_queue
        WHERE state = 0 AND queue > ''
        ORDER BY queue, route LIMIT 1)
    UNION ALL
    SELECT next.queue, next.route
    FROM shared CROSS JOIN ratchet_jobs AS next ON next.id = (
        SELECT id FROM ratchet_jobs INDEXED BY ratchet_jobs_queue
        WHERE state = 0 AND queue IS NOT NULL AND (queue, route) > (shared.queue, shared.route)
        ORDER BY queue, route LIMIT 1)
),
head (route, shared, queue, kind, run_at) AS (
    SELECT route.id, NULL, route.queue, route.kind,
           (SELECT job.run_at FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_claim
            WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
              AND job.run_at <= ?1
            ORDER BY job.run_at, job.id
            LIMIT 1)
    FROM ratchet_routes AS route
    CROSS JOIN level
    WHERE route.queue <> ''
    UNION ALL
    SELECT shared.route, shared.queue, shared.queue, route.kind,
           (SELECT job.run_at FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_queue
            WHERE job.state = 0 AND job.queue = shared.queue AND job.route = shared.route
              AND job.priority = level.priority AND job.run_at <= ?1
            ORDER BY job.run_at, job.id
            LIMIT 1)
    FROM shared
    CROSS JOIN ratchet_routes AS route ON route.id = shared.route
    CROSS JOIN level)
SELECT route,
       queue IN (SELECT name FROM ratchet_pauses WHERE scope = 0),
       kind IN (SELECT name FROM ratchet_pauses WHERE scope = 1),
       min(run_at), shared
FROM head
WHERE run_at IS NOT NULL
GROUP BY route, shared

-- name: count_due
-- Counts the due jobs of a queue (?2), up to ?3. [queue.depth] Reads one entry of
-- ratchet_jobs_claim or ratchet_jobs_queue per counted job, with one seek per priority and route of
-- the queue or shared route.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0))
SELECT count(*) FROM (
    SELECT 1
    FROM ratchet_routes AS route
    CROSS JOIN level
    CROSS JOIN ratchet_jobs AS job INDEXED BY ratchet_jobs_claim
    WHERE route.queue = ?2
      AND job.state = 0 AND job.route = route.id AND job.priority = level.priority
      AND job.run_at <= ?1
    UNION ALL
    SELECT 1
    FROM ratchet_routes AS route
    CROSS JOIN level
    CROSS JOIN ratchet_jobs AS job INDEXED BY ratchet_jobs_queue
    WHERE route.queue = ''
      AND job.state = 0 AND job.queue = ?2 AND job.route = route.id
      AND job.priority = level.priority AND job.run_at <= ?1
    LIMIT ?3)

-- name: misplaced_jobs
-- Returns the paused and the marked queues that have pending jobs in shared routes, each with such
-- a route. [queue.separate] One seek of ratchet_jobs_queue for each of these queues and shared
-- route.
SELECT wanted.queue, route.id
FROM (SELECT name AS queue FROM ratchet_pauses WHERE scope = 0
      UNION SELECT queue FROM ratchet_routes WHERE kind = '') AS wanted
CROSS JOIN ratchet_routes AS route
WHERE route.queue = '' AND EXISTS (
    SELECT 1 FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_queue
    WHERE job.state = 0 AND job.queue = wanted.queue AND job.route = route.id)

-- name: move_jobs
-- Moves up to ?4 pending jobs of a queue (?1) from a shared route (?2) to the queue's own route
-- (?3). [queue.separate] Reads a range of ratchet_jobs_queue.
UPDATE ratchet_jobs SET route = ?3, queue = NULL
WHERE id IN (
    SELECT id FROM ratchet_jobs INDEXED BY ratchet_jobs_queue
    WHERE state = 0 AND queue = ?1 AND route = ?2
    LIMIT ?4)

-- name: add_route
-- Stores a new route. The unique key of ratchet_routes prevents duplicates.
INSERT INTO ratchet_routes (queue, kind, capability, permit, fair, stamp)
VALUES (?1, ?2, ?3, ?4, ?5, random())
RETURNING id, stamp

-- name: load_routes
-- Returns the last cached route (?1), if it is still stored, and the routes after it, with their
-- stamps. Uses the primary key of ratchet_routes.
SELECT id, stamp, queue, kind, capability, permit, fair FROM ratchet_routes WHERE id >= ?1 ORDER BY id

-- name: last_route
-- Returns the newest route. It shows whether another process has added routes, or the database was
-- restored. Uses the primary key of ratchet_routes.
SELECT id, stamp FROM ratchet_routes ORDER BY id DESC LIMIT 1

-- name: lost_routes
-- Returns the ids of missing routes, and how many of the first 1,000 pending jobs without a route
-- have each. Ids have no gaps, so the missing ones are greater than the last stored one. Reads the
-- end of ratchet_jobs_claim, at most 1,000 entries.
SELECT route, count(*)
FROM (
    SELECT route FROM ratchet_jobs
    WHERE state = 0 AND route > (SELECT coalesce(max(id), 0) FROM ratchet_routes)
    LIMIT 1000
)
GROUP BY route
