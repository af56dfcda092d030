-- Notes when a batch ended. [batch.end] Primary key of ratchet_batches.
UPDATE ratchet_batches SET ended_at = ?2 WHERE id = ?1 AND ended_at IS NULL
