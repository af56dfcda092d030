-- The batches that jobs are in. [get.whole] Primary key of batch_jobs.
SELECT job, batch FROM {schema}.batch_jobs
WHERE job IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
