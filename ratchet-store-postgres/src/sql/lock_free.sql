-- Locks those of these jobs that nobody else has locked, until the transaction ends; they come back.
-- Primary key of jobs.
SELECT job.id
FROM unnest($1::uuid[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT id FROM {schema}.jobs WHERE id = wanted.id FOR NO KEY UPDATE SKIP LOCKED
) AS job
