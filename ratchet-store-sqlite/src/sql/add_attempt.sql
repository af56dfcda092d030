-- Adds an ended claim to a job's history. [settle.history] [reclaim.requeue]
INSERT INTO ratchet_attempts (job, seq, outcome, claimed_at, ended_at, ran_for_us, node, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
