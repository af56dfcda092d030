-- Notes that the ends of children were counted, of those that were not; in which batches to count
-- them. [batch.count] Primary key of batch_jobs.
UPDATE {schema}.batch_jobs SET counted = 1
OUTPUT inserted.job, inserted.batch
WHERE job IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND counted = 0
