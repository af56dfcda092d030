-- Deletes finished jobs with all they left, but not their idempotency keys.
-- [delete.job] [archive.move] [archive.keys] [link.kept] Primary keys; job_tags_of_job.
WITH gone AS (
    DELETE FROM {schema}.jobs WHERE id = ANY($1::uuid[]) AND state + 0 >= 4 RETURNING id, flags
),
data AS (
    DELETE FROM {schema}.job_data WHERE id = ANY(ARRAY(SELECT id FROM gone))
),
notes AS (
    DELETE FROM {schema}.job_notes WHERE job = ANY(ARRAY(SELECT id FROM gone))
),
tags AS (
    DELETE FROM {schema}.job_tags WHERE job = ANY(ARRAY(SELECT id FROM gone))
),
links AS (
    DELETE FROM {schema}.links WHERE child = ANY(ARRAY(SELECT id FROM gone WHERE flags & 8 = 8))
),
signals AS (
    DELETE FROM {schema}.signals WHERE job = ANY(ARRAY(SELECT id FROM gone WHERE flags & 8 = 8))
),
memberships AS (
    DELETE FROM {schema}.batch_jobs
    WHERE job = ANY(ARRAY(SELECT id FROM gone WHERE flags & 32 = 32))
),
history AS (
    DELETE FROM {schema}.attempts WHERE job = ANY(ARRAY(SELECT id FROM gone))
)
SELECT id FROM gone
