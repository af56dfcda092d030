-- Deletes a job. [purge.old] [purge.keys] Primary key of ratchet_jobs.
DELETE FROM ratchet_jobs WHERE id = ?1
