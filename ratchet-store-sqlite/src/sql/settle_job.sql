-- Ends a claim and says what becomes of the job. [settle.effect] [settle.token] [settle.cancel]
-- Primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = ?3, run_at = coalesce(?4, run_at), attempts = attempts + ?5, settled_seq = claim_seq,
    finished_at = ?6, ran_for_us = ?7
WHERE id = ?1 AND state = 3 AND claim_seq = ?2
