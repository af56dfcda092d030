-- As list_newest, for the jobs with a tag (@P6): only they are read. [page.order] [page.walk]
-- [page.filter] [act.select] Primary keys.
SELECT TOP (@P5) tagged.job
FROM {schema}.job_tags AS tagged
JOIN {schema}.jobs AS job ON job.id = tagged.job
WHERE tagged.tag = @P6 AND tagged.job < CONVERT(binary(16), @P4)
  AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY tagged.job DESC
