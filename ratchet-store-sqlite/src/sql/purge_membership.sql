-- Deletes that a purged job was in a batch; the batch stays as it is. [purge.old] Primary key.
DELETE FROM ratchet_batch_jobs WHERE job = ?1
