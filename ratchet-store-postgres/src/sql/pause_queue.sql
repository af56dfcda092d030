-- Pauses a queue. [queue.pause] [queue.again] Primary key.
INSERT INTO {schema}.paused_queues (queue, paused_at) SELECT $1, {now}
ON CONFLICT (queue) DO NOTHING
