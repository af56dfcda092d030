-- Fails a job whose signal did not come. [signal.expire] Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = 5, finished_at = ?2 WHERE id = ?1 AND state = 1
