-- The numbers of routes that waiting jobs name and that do not exist, and how many of the first 1,000
-- such jobs name each: numbers after the last route, since routes are numbered without gaps.
-- The end of jobs_claim, 1,000 entries at most.
SELECT lost.route, COUNT_BIG(*)
FROM (
    SELECT TOP (1000) job.route FROM {schema}.jobs AS job WITH (INDEX(jobs_claim))
    WHERE job.state = 0 AND job.route > (SELECT COALESCE(MAX(id), 0) FROM {schema}.routes)
    ORDER BY job.route, job.priority, job.run_at, job.id
) AS lost
GROUP BY lost.route
ORDER BY lost.route
