-- The numbers of routes that waiting jobs name and that do not exist, and how many of the first 1,000
-- such jobs name each: numbers after the last route, since routes are numbered without gaps.
-- The end of ratchet_jobs_claim, 1,000 entries at most.
SELECT route, count(*)
FROM (
    SELECT route FROM ratchet_jobs
    WHERE state = 0 AND route > (SELECT coalesce(max(id), 0) FROM ratchet_routes)
    LIMIT 1000
)
GROUP BY route
