-- Forgets why the last attempt failed. [requeue.fresh] Primary key of ratchet_job_notes.
UPDATE ratchet_job_notes SET last_error = NULL WHERE job = ?1
