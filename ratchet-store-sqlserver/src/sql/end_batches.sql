-- Notes when batches ended. [batch.end] Primary key of batches.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE batch SET ended_at = @now
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = wanted.id
WHERE batch.ended_at IS NULL
