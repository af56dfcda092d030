-- Closes a batch that is open. [batch.close] Primary key of ratchet_batches.
UPDATE ratchet_batches SET closed = 1 WHERE id = ?1 AND closed = 0
