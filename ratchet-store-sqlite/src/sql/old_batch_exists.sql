-- Whether there is a batch to delete. [batch.purge] ratchet_batches_ended.
SELECT EXISTS (
    SELECT 1 FROM ratchet_batches INDEXED BY ratchet_batches_ended
    WHERE ended_at IS NOT NULL AND ended_at < ?1)
