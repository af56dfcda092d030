-- The tags of jobs. [get.whole] [tag.set] job_tags_of_job.
SELECT job, tag FROM {schema}.job_tags
WHERE job IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
