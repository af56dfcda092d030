-- Makes a waiting job due at another time. [reschedule.job] [lane.reschedule]
-- Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET run_at = ?2 WHERE id = ?1 AND state IN (0, 1, 2)
