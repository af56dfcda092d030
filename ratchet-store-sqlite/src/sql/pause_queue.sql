-- Pauses a queue that is not paused. [queue.pause] [queue.again] Primary key.
INSERT INTO ratchet_paused_queues (queue, paused_at) VALUES (?1, ?2)
ON CONFLICT (queue) DO NOTHING
