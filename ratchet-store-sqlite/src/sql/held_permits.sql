-- How many permits a resource has and how many running jobs hold one; with NULL, of every resource.
-- [permit.max] [permit.free] [permit.list]
-- Primary key; the routes, which are few; ratchet_jobs_running: as many entries as are held.
SELECT permit.resource, permit.max_held,
       (SELECT count(*)
        FROM ratchet_routes AS route
        CROSS JOIN ratchet_jobs AS job INDEXED BY ratchet_jobs_running
        WHERE route.permit = permit.resource
          AND job.state = 3 AND job.cancel_requested IN (0, 1) AND job.route = route.id)
FROM ratchet_permits AS permit
WHERE ?1 IS NULL OR permit.resource = ?1
ORDER BY permit.resource
