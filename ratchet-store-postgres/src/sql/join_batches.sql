-- Notes that new jobs are in batches. [batch.join]
INSERT INTO {schema}.batch_jobs (job, batch)
SELECT job, batch FROM unnest($1::uuid[], $2::uuid[]) AS new (job, batch)
