-- Deletes what was fixed at the enqueue of a job. [purge.old] [delete.job] Primary key of ratchet_job_data.
DELETE FROM ratchet_job_data WHERE id = ?1
