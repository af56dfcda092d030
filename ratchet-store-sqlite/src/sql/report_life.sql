-- Restarts the stall timeout of a claim. [report.life] [report.token]
-- Primary key of ratchet_jobs; no index has last_report.
UPDATE ratchet_jobs SET last_report = ?3 WHERE id = ?1 AND state = 3 AND claim_seq = ?2
