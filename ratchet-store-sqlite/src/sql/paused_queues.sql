-- The paused queues. [queue.list] Reads the whole, small table.
SELECT queue FROM ratchet_paused_queues
