-- How batches stand. [batch.read] Primary key of batches.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id = ANY($1::uuid[])
