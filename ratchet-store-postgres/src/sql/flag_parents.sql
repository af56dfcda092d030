-- Notes that others are linked to jobs, which stay as they are until the transaction ends; the jobs
-- that there are, with their states. A settlement at the same time waits for this and sees the flag
-- then, or is waited for here and seen. [link.enqueue] [link.missing] Primary key of jobs; locked in
-- order of id, as every call does.
WITH parent AS MATERIALIZED (
    SELECT id FROM {schema}.jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
)
UPDATE {schema}.jobs AS job SET flags = job.flags | 16
WHERE job.id = ANY(ARRAY(SELECT id FROM parent))
RETURNING job.id, job.state
