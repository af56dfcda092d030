-- Deletes finished jobs with all they left, but not their idempotency keys.
-- [delete.job] [archive.move] [archive.keys] Primary keys; job_tags_of_job.
WITH gone AS (
    DELETE FROM {schema}.jobs WHERE id = ANY($1::uuid[]) AND state + 0 >= 4 RETURNING id
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
history AS (
    DELETE FROM {schema}.attempts WHERE job = ANY(ARRAY(SELECT id FROM gone))
)
SELECT id FROM gone
