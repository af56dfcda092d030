-- Gives a pending job to a node. [claim.exclusive] [claim.running]
-- Primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = 3, claim_seq = claim_seq + 1, node = ?2, claimed_at = ?3, last_report = NULL,
    cancel_requested = 0
WHERE id = ?1 AND state = 0
