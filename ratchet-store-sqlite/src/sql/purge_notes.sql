-- Deletes what the bodies of a job left. [purge.old] [delete.job] Primary key of ratchet_job_notes.
DELETE FROM ratchet_job_notes WHERE job = ?1
