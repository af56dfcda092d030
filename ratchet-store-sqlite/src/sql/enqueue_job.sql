-- Stores a job, unless its id is stored already. [enqueue.created] [enqueue.repeat] [enqueue.due] [lane.head]
-- Primary key of ratchet_jobs.
INSERT INTO ratchet_jobs (id, state, route, priority, run_at, data, flags, created_at)
VALUES (?1, ?8, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO NOTHING
