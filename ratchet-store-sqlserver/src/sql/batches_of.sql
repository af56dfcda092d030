-- The batches that jobs are in. [get.whole] Primary key of batch_jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job, batch FROM {schema}.batch_jobs
WHERE job IN (SELECT id FROM @wanted)
