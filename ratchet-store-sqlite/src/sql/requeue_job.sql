-- Makes a dead letter wait again, due now, as good as new. [requeue.fresh] [lane.requeue] Primary key.
UPDATE ratchet_jobs SET state = ?3, run_at = ?2, attempts = 0, crash_count = 0, finished_at = NULL
WHERE id = ?1 AND state = 5
