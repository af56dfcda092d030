-- Notes that new jobs are in batches. [batch.join]
INSERT INTO {schema}.batch_jobs (job, batch)
SELECT CONVERT(binary(16), given.job, 2), CONVERT(binary(16), given.batch, 2)
FROM OPENJSON(@P1) WITH (job char(32), batch char(32)) AS given
