-- Which of these jobs are stored, and which jobs have these keys: idempotency keys (1) and unique
-- keys (2). [enqueue.repeat] [keys.idempotency] [keys.unique] Primary keys.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
DECLARE @idempotency TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @idempotency (name) SELECT DISTINCT {name value} FROM OPENJSON(@P2);
DECLARE @unique TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @unique (name) SELECT DISTINCT {name value} FROM OPENJSON(@P3);
SELECT 0 AS what, CAST(NULL AS nvarchar(128)) COLLATE Latin1_General_BIN2 AS [key], id AS job
FROM {schema}.jobs
WHERE id IN (SELECT id FROM @wanted)
UNION ALL
SELECT 1, [key], job FROM {schema}.idempotency_keys
WHERE [key] IN (SELECT name FROM @idempotency)
UNION ALL
SELECT 2, [key], job FROM {schema}.unique_keys
WHERE [key] IN (SELECT name FROM @unique)
