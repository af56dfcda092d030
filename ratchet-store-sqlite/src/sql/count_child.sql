-- Notes that the end of a child was counted, if it was not; the batch to count it in.
-- [batch.count] Primary key of ratchet_batch_jobs.
UPDATE ratchet_batch_jobs SET counted = 1 WHERE job = ?1 AND counted = 0 RETURNING batch
