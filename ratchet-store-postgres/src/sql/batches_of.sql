-- The batches that jobs are in. [get.whole] Primary key of batch_jobs.
SELECT job, batch FROM {schema}.batch_jobs WHERE job = ANY($1::uuid[])
