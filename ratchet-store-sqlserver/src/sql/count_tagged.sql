-- As count_matching, for the jobs with a tag (@P4): only they are read. [count.filter] Primary keys.
SELECT job.state, COUNT_BIG(*)
FROM {schema}.job_tags AS tagged
JOIN {schema}.jobs AS job ON job.id = tagged.job
WHERE tagged.tag = @P4 AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
GROUP BY job.state
