-- Deletes the longest ended batches. [batch.purge] ratchet_batches_ended, read in its order.
DELETE FROM ratchet_batches
WHERE id IN (
    SELECT id FROM ratchet_batches INDEXED BY ratchet_batches_ended
    WHERE ended_at IS NOT NULL AND ended_at < ?1
    ORDER BY ended_at, id
    LIMIT ?2)
