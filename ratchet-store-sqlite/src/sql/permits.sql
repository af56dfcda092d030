-- Permits, limits of fair keys, and rates.

-- name: set_permits
-- Sets the limit of a resource, and creates the resource if it is new. Changes no row if the limit
-- is the same, or if the resource exists and ?3 is true, which keeps its limit. [permit.change]
-- [permit.declare] Uses the primary key.
INSERT INTO ratchet_permits AS old (resource, max_held) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET max_held = excluded.max_held
WHERE old.max_held <> excluded.max_held AND NOT ?3

-- name: held_permits
-- Returns the limits of these resources (?1, a JSON array; NULL means all) and how many running
-- jobs hold a permit of each. [permit.max] [permit.free] [permit.list] Reads the few resources and
-- routes once, and one entry of ratchet_jobs_permits per held permit.
WITH held AS MATERIALIZED (
    SELECT route.permit AS resource, count(*) AS held
    FROM ratchet_routes AS route
    CROSS JOIN ratchet_jobs AS job INDEXED BY ratchet_jobs_permits
    WHERE route.permit <> ''
      AND job.state = 3 AND job.flags & {permit} <> 0 AND job.route = route.id
    GROUP BY route.permit
)
SELECT permit.resource, permit.max_held, coalesce(held.held, 0)
FROM ratchet_permits AS permit
LEFT JOIN held ON held.resource = permit.resource
WHERE ?1 IS NULL OR permit.resource IN (SELECT value FROM json_each(?1))
ORDER BY permit.resource

-- name: find_permit
-- Returns a row if the resource exists. [permit.unknown] Uses the primary key.
SELECT 1 FROM ratchet_permits WHERE resource = ?1

-- name: find_rate
-- Returns the state of a rate-limit key. [rate.exact] Uses the primary key.
SELECT tat FROM ratchet_rates WHERE key = ?1

-- name: put_rate
-- Stores the new state of a rate-limit key, as ratchet_core::rate::Rate::take returned it.
-- [rate.exact] Uses the primary key.
INSERT INTO ratchet_rates (key, tat) VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET tat = excluded.tat

-- name: forget_rates
-- Deletes the rate-limit keys whose state has expired. [rate.forget] Reads the whole table, which
-- has a row for each key that was used since the last pass.
DELETE FROM ratchet_rates
WHERE key IN (SELECT key FROM ratchet_rates WHERE tat <= ?1 LIMIT ?2)

-- name: set_fair_limit
-- Sets the limit of a scope: a queue or pattern (?1), and a fair key (?2) or ''. Changes no row if
-- the limit is the same. [fair.limit.change] Uses the primary key.
INSERT INTO ratchet_fair_limits AS old (queue, fair_key, max_running) VALUES (?1, ?2, ?3)
ON CONFLICT (fair_key, queue) DO UPDATE SET max_running = excluded.max_running
WHERE old.max_running <> excluded.max_running

-- name: remove_fair_limit
-- Removes the limit of a scope. [fair.limit.change] Uses the primary key.
DELETE FROM ratchet_fair_limits WHERE queue = ?1 AND fair_key = ?2

-- name: list_fair_limits
-- Returns all limits of fair keys. [fair.limit.list] Reads the whole table.
SELECT queue, fair_key, max_running FROM ratchet_fair_limits

-- name: find_fair_limits
-- Returns the limits that may apply to a fair key (?2) of a queue (?1): those of the key, of the
-- queue and of all patterns. [fair.limit.max] Uses the primary key, and reads one row for each
-- queue and pattern.
SELECT queue, fair_key, max_running FROM ratchet_fair_limits
WHERE fair_key = '' AND (queue = ?1 OR substr(queue, -1) = '*')
UNION ALL
SELECT queue, fair_key, max_running FROM ratchet_fair_limits WHERE fair_key = ?2 AND queue = ?1

-- name: count_running_key
-- Counts the running jobs of a fair key (?2) in these routes (?1, a JSON array). [fair.limit.max]
-- [fair.limit.free] Reads one entry of ratchet_jobs_places per job that it counts.
SELECT count(*) FROM json_each(?1) AS wanted
CROSS JOIN ratchet_jobs AS job INDEXED BY ratchet_jobs_places
WHERE job.state = 3 AND job.fair_key IS NOT NULL AND job.route = wanted.value
  AND job.fair_key = ?2

-- name: find_freed
-- Returns the oldest freed entries of these routes (?1, a JSON array), at most ?3. Returns no row
-- for a node (?2) that is stored as not active. [fair.limit.free] [claim.paused] Uses the unique
-- index of ratchet_freed.
SELECT freed.id, freed.route, freed.fair_key
FROM json_each(?1) AS wanted
CROSS JOIN ratchet_routes AS route ON route.id = wanted.value
CROSS JOIN ratchet_freed AS freed ON freed.route = route.id
WHERE route.queue NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 0)
  AND NOT EXISTS (SELECT 1 FROM ratchet_nodes WHERE node = ?2 AND status <> 1)
ORDER BY freed.id
LIMIT ?3

-- name: remove_freed
-- Deletes a freed entry. [fair.limit.free] Uses the primary key.
DELETE FROM ratchet_freed WHERE id = ?1

-- name: add_freed
-- Stores a freed entry of a route (?1) and a fair key (?2) behind all others, unless it is stored.
-- There is only one writer, so no claim can delete the stored one meanwhile. [fair.limit.free] Uses
-- the unique index.
INSERT INTO ratchet_freed (route, fair_key) VALUES (?1, ?2) ON CONFLICT DO NOTHING

-- name: free_parked
-- Stores a freed entry for each fair key that has parked jobs in a route (?1), or only for one key
-- (?2, or ''), because a limit was changed. [fair.limit.change] Reads the parked jobs of the route
-- from ratchet_jobs_turn.
INSERT INTO ratchet_freed (route, fair_key)
SELECT DISTINCT route, fair_key FROM ratchet_jobs INDEXED BY ratchet_jobs_turn
WHERE state = 0 AND turn IS NOT NULL AND route = ?1 AND priority IN (0, 1, 2, 3, 4)
  AND turn >= 4611686018427387904 AND (?2 = '' OR fair_key = ?2)
ON CONFLICT DO NOTHING

-- name: parked_levels
-- Returns those of these routes (?1, a JSON array) and their priorities in which jobs of a fair key
-- (?2) are parked. [fair.limit.free] [fair.limit.wait] One seek of ratchet_jobs_key each.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0))
SELECT wanted.value, level.priority
FROM json_each(?1) AS wanted
CROSS JOIN level
WHERE EXISTS (
    SELECT 1 FROM ratchet_jobs INDEXED BY ratchet_jobs_key
    WHERE state = 0 AND turn IS NOT NULL AND route = wanted.value
      AND priority = level.priority AND fair_key = ?2 AND turn >= 4611686018427387904)

-- name: count_ahead
-- Counts the jobs of a fair key (?3) in a route (?1) and priority (?2) that have turns and are not
-- parked, at most ?4. [fair.limit.free] Reads one entry of ratchet_jobs_key per job that it counts.
SELECT count(*) FROM (
    SELECT 1 FROM ratchet_jobs INDEXED BY ratchet_jobs_key
    WHERE state = 0 AND turn IS NOT NULL AND route = ?1 AND priority = ?2 AND fair_key = ?3
      AND turn < 4611686018427387904
    LIMIT ?4)

-- name: first_parked
-- Returns the first ?4 parked jobs of a fair key (?3) in a route and priority, with their costs.
-- [fair.limit.free] Reads a range of ratchet_jobs_key.
SELECT id, fair_cost FROM ratchet_jobs INDEXED BY ratchet_jobs_key
WHERE state = 0 AND turn IS NOT NULL AND route = ?1 AND priority = ?2 AND fair_key = ?3
  AND turn >= 4611686018427387904
ORDER BY turn, id
LIMIT ?4

-- name: place_of_job
-- Returns the route and the fair key of a job. [fair.limit.free] Uses the primary key.
SELECT route, fair_key FROM ratchet_jobs WHERE id = ?1
