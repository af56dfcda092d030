-- Notes when batches ended. [batch.end] Primary key of batches.
DECLARE @now bigint = {now};
UPDATE {schema}.batches SET ended_at = @now
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND ended_at IS NULL
