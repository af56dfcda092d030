-- Resumes a paused queue. [queue.resume] [queue.again] Primary key.
DELETE FROM {schema}.paused_queues WHERE queue = @P1
