-- As list_oldest, of the children of a batch (@P6), with a tag (@P8) if there is one (@P7).
-- [batch.filter] [page.order] [page.walk] batch_jobs_batch.
SELECT TOP (@P5) member.job
FROM {schema}.batch_jobs AS member
JOIN {schema}.jobs AS job ON job.id = member.job
WHERE member.batch = CONVERT(binary(16), @P6) AND member.job > CONVERT(binary(16), @P4)
  AND (@P7 = 0 OR EXISTS (SELECT 1 FROM {schema}.job_tags AS tagged
                          WHERE tagged.tag = @P8 AND tagged.job = member.job))
  AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY member.job
