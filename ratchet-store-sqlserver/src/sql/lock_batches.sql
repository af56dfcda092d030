-- How batches stand, and stay until the transaction ends. [batch.join] [batch.count] [link.enqueue]
-- Primary key of batches. The rows are written as they were: that locks them everywhere.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.batches SET closed = closed
WHERE id IN (SELECT id FROM @wanted);
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id IN (SELECT id FROM @wanted)
