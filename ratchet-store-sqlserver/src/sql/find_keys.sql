-- Which of these jobs are stored, and which jobs have these keys: idempotency keys (1) and unique
-- keys (2). [enqueue.repeat] [keys.idempotency] [keys.unique] Primary keys.
SELECT 0 AS what, CAST(NULL AS nvarchar(128)) COLLATE Latin1_General_BIN2 AS [key], id AS job
FROM {schema}.jobs
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
UNION ALL
SELECT 1, [key], job FROM {schema}.idempotency_keys
WHERE [key] IN (SELECT {name value} FROM OPENJSON(@P2))
UNION ALL
SELECT 2, [key], job FROM {schema}.unique_keys
WHERE [key] IN (SELECT {name value} FROM OPENJSON(@P3))
