-- Closes a batch that is open; how it stands then, locked until the transaction ends. [batch.close]
-- Primary key of batches.
DECLARE @closed TABLE (id binary(16) NOT NULL);
UPDATE {schema}.batches SET closed = 1 OUTPUT inserted.id INTO @closed
WHERE id = CONVERT(binary(16), @P1) AND closed = 0;
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id IN (SELECT id FROM @closed)
