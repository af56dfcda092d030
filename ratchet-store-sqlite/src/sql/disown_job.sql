-- Leaves a job that crashed too often running without an owner. [reclaim.exhausted] Primary key.
UPDATE ratchet_jobs SET node = NULL, crash_count = ?3 WHERE id = ?1 AND state = 3 AND claim_seq = ?2
