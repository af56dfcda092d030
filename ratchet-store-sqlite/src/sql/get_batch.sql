-- How a batch stands. [batch.read] Primary key of ratchet_batches.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM ratchet_batches
WHERE id = ?1
