-- Notes that the ends of children were counted, of those that were not; in which batches to count
-- them. [batch.count] Primary key of batch_jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.batch_jobs SET counted = 1
OUTPUT inserted.job, inserted.batch
FROM @wanted AS wanted{seek batch_jobs}
WHERE batch_jobs.job = wanted.id
  AND batch_jobs.counted = 0
OPTION (FORCE ORDER, LOOP JOIN)
