-- Deletes a job. [purge.old] [delete.job] [purge.keys] Primary key of ratchet_jobs.
DELETE FROM ratchet_jobs WHERE id = ?1
