-- How batches stand, and stay until the transaction ends. [batch.join] [batch.count] [link.enqueue]
-- Primary key of batches; locked in order of id, as every call does.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE
