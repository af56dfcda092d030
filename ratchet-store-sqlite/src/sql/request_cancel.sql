-- Asks the node of a running job to cancel it. [cancel.running] Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET cancel_requested = 1 WHERE id = ?1 AND state = 3
