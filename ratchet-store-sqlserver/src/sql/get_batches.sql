-- How batches stand. [batch.read] Primary key of batches.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
