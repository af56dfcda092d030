-- Notes when batches ended. [batch.end] Primary key of batches.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.batches SET ended_at = @now
WHERE id IN (SELECT id FROM @wanted) AND ended_at IS NULL
