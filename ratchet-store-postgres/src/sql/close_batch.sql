-- Closes a batch that is open; how it stands then, locked until the transaction ends. [batch.close]
-- Primary key of batches.
UPDATE {schema}.batches SET closed = true
WHERE id = $1 AND NOT closed
RETURNING id, total, succeeded, failed, cancelled, closed, created_at, ended_at
