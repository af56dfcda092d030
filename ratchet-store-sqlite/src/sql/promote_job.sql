-- Lets a job be claimed that has become the head of its lane. [lane.promote]
-- Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = 0 WHERE id = ?1 AND state = 1
