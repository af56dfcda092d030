-- The next due jobs of one route and priority, in claim order. [claim.due] [claim.order]
-- One range of ratchet_jobs_claim, read in its order: no sort, no cost per waiting job.
SELECT run_at, id
FROM ratchet_jobs INDEXED BY ratchet_jobs_claim
WHERE state = 0 AND route = ?1 AND priority = ?2 AND run_at <= ?3 AND (run_at, id) > (?4, ?5)
ORDER BY run_at, id
LIMIT ?6
