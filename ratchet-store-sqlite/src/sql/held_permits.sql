-- How many permits these resources (?1, a JSON array; NULL: all) have and how many running jobs hold
-- one of them. [permit.max] [permit.free] [permit.list]
-- The resources and the routes, which are few, once; ratchet_jobs_permits: as many entries as are held.
WITH held AS MATERIALIZED (
    SELECT route.permit AS resource, count(*) AS held
    FROM ratchet_routes AS route
    CROSS JOIN ratchet_jobs AS job INDEXED BY ratchet_jobs_permits
    WHERE route.permit <> ''
      AND job.state = 3 AND job.flags & 128 <> 0 AND job.route = route.id
    GROUP BY route.permit
)
SELECT permit.resource, permit.max_held, coalesce(held.held, 0)
FROM ratchet_permits AS permit
LEFT JOIN held ON held.resource = permit.resource
WHERE ?1 IS NULL OR permit.resource IN (SELECT value FROM json_each(?1))
ORDER BY permit.resource
