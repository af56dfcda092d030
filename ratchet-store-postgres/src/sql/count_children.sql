-- Notes that the ends of children were counted, of those that were not; in which batches to count
-- them. [batch.count] Primary key of batch_jobs.
UPDATE {schema}.batch_jobs SET counted = true
WHERE job = ANY($1::uuid[]) AND NOT counted
RETURNING job, batch
