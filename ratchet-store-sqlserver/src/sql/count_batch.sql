-- As count_matching, for the children of a batch (@P4), with a tag (@P6) if there is one (@P5): only
-- they are read. [count.filter] batch_jobs_batch and primary keys.
SELECT job.state, COUNT_BIG(*)
FROM {schema}.batch_jobs AS member
JOIN {schema}.jobs AS job ON job.id = member.job
WHERE member.batch = CONVERT(binary(16), @P4)
  AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
  AND (@P5 = 0 OR EXISTS (SELECT 1 FROM {schema}.job_tags AS tagged
                          WHERE tagged.tag = @P6 AND tagged.job = member.job))
GROUP BY job.state
