-- Moves a waiting job from one state to another. [act.respond] [cancel.waiting] [pause.job]
-- Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = ?3, finished_at = ?4 WHERE id = ?1 AND state = ?2
