-- The batches with ids below one, the newest first. [batch.list] Primary key, backwards.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM ratchet_batches
WHERE id < ?1
ORDER BY id DESC
LIMIT ?2
