-- Takes a claim back. [reclaim.requeue] [reclaim.once] Primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = ?3, crash_count = ?4, finished_at = ?5
WHERE id = ?1 AND state = 3 AND claim_seq = ?2
