-- Stores an open batch, unless it is stored. [batch.create]
DECLARE @now bigint = {now};
INSERT INTO {schema}.batches (id, created_at)
SELECT CONVERT(binary(16), @P1), @now
WHERE NOT EXISTS (SELECT 1 FROM {schema}.batches WHERE id = CONVERT(binary(16), @P1))
