-- Waits for the claims that are going on, and holds up those that begin, until the transaction
-- ends. [queue.pause] Readers of the table, and dumps, go on.
LOCK TABLE {schema}.paused_queues IN EXCLUSIVE MODE
