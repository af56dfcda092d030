-- The batches with ids below one (@P1), the newest first. [batch.list] Primary key, backwards.
SELECT TOP (@P2) id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id < CONVERT(binary(16), @P1)
ORDER BY id DESC
