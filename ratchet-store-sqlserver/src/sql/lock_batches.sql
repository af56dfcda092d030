-- How batches stand, and stay until the transaction ends. [batch.join] [batch.count] [link.enqueue]
-- Primary key of batches. The rows are written as they were: that locks them everywhere.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE batch SET closed = batch.closed
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = wanted.id;
SELECT batch.id, batch.total, batch.succeeded, batch.failed, batch.cancelled, batch.closed,
       batch.created_at, batch.ended_at
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON batch.id = wanted.id
