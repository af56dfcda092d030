-- Deletes the history of a job. [purge.old] [delete.job] Primary key of ratchet_attempts.
DELETE FROM ratchet_attempts WHERE job = ?1
