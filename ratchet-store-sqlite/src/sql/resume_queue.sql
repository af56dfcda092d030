-- Resumes a paused queue. [queue.resume] [queue.again] Primary key.
DELETE FROM ratchet_paused_queues WHERE queue = ?1
