-- Which of these jobs are stored, and which jobs have these keys: idempotency keys (1) and unique
-- keys (2). [enqueue.repeat] [keys.idempotency] [keys.unique] Primary keys.
SELECT 0 AS what, NULL AS key, id AS job FROM {schema}.jobs WHERE id = ANY($1::uuid[])
UNION ALL
SELECT 1, key, job FROM {schema}.idempotency_keys WHERE key = ANY($2::text[])
UNION ALL
SELECT 2, key, job FROM {schema}.unique_keys WHERE key = ANY($3::text[])
