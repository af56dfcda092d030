-- Lets a job be claimed that waits for nothing any more. [link.release] [signal.deliver]
-- Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = 0, run_at = max(run_at, ?2) WHERE id = ?1 AND state = 1
