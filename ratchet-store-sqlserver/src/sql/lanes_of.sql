-- The lanes of jobs that have one, whether they are unfinished or not. [lane.requeue] [lane.promote]
-- Primary keys. What a job's place in its lane says counts more: it outlives damage to the job.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id, COALESCE(member.queue, route.queue), COALESCE(member.lane, data.lane)
FROM {schema}.jobs AS job
LEFT JOIN {schema}.lane_jobs AS member ON member.job = job.id
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.routes AS route ON route.id = job.route
WHERE job.id IN (SELECT id FROM @wanted) AND job.flags & 4 = 4
  AND COALESCE(member.lane, data.lane) IS NOT NULL
  AND COALESCE(member.queue, route.queue) IS NOT NULL
