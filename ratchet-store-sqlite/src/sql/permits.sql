-- Permits and rates.

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
