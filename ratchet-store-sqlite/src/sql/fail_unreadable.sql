-- Makes a pending job whose row cannot be read a dead letter, so that it harms only itself.
-- [errors.poison] Primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = 5, claim_seq = claim_seq + 1, settled_seq = claim_seq + 1, finished_at = ?2
WHERE id = ?1 AND state = 0
