-- The paused queues. [queue.list] Reads the whole, small table.
SELECT queue FROM {schema}.paused_queues
