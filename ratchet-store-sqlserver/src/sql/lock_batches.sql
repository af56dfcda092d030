-- How batches stand, and stay until the transaction ends. [batch.join] [batch.count] [link.enqueue]
-- Primary key of batches. The rows are written as they were: that locks them everywhere.
UPDATE {schema}.batches SET closed = closed
OUTPUT inserted.id, inserted.total, inserted.succeeded, inserted.failed, inserted.cancelled,
       inserted.closed, inserted.created_at, inserted.ended_at
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
