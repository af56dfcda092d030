-- The tags of jobs. [get.whole] [tag.set] job_tags_of_job.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job, tag FROM {schema}.job_tags
WHERE job IN (SELECT id FROM @wanted)
