-- The batch a job is in. [get.whole] Primary key of ratchet_batch_jobs.
SELECT batch FROM ratchet_batch_jobs WHERE job = ?1
