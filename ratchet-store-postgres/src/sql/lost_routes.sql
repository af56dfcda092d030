-- The numbers of routes that waiting jobs name and that do not exist, and how many of the first 1,000
-- such jobs name each: numbers after the last route, since routes are numbered without gaps.
-- The end of jobs_claim, 1,000 entries at most.
SELECT lost.route, count(*)
FROM (
    SELECT job.route FROM {schema}.jobs AS job
    WHERE job.state = 0 AND job.route > (SELECT coalesce(max(id), 0) FROM {schema}.routes)
    ORDER BY job.route, job.priority, job.run_at, job.id
    LIMIT 1000
) AS lost
GROUP BY lost.route
ORDER BY lost.route
