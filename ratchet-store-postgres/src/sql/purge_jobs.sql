-- Deletes the longest finished jobs of a state with all they left, but not their idempotency keys.
-- [purge.old] [purge.keys] [link.kept] jobs_finished, read in its order, and primary keys.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
old AS MATERIALIZED (
    SELECT id, flags FROM {schema}.jobs
    WHERE state = $1 AND state >= 4 AND finished_at < (SELECT now FROM clock) - $2::bigint
    ORDER BY finished_at, id
    LIMIT $3
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {schema}.jobs WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING id
),
data AS (
    DELETE FROM {schema}.job_data WHERE id = ANY(ARRAY(SELECT id FROM old))
),
notes AS (
    DELETE FROM {schema}.job_notes WHERE job = ANY(ARRAY(SELECT id FROM old))
),
tags AS (
    DELETE FROM {schema}.job_tags WHERE job = ANY(ARRAY(SELECT id FROM old))
),
links AS (
    DELETE FROM {schema}.links WHERE child = ANY(ARRAY(SELECT id FROM old WHERE flags & 8 = 8))
),
signals AS (
    DELETE FROM {schema}.signals WHERE job = ANY(ARRAY(SELECT id FROM old WHERE flags & 8 = 8))
),
memberships AS (
    DELETE FROM {schema}.batch_jobs WHERE job = ANY(ARRAY(SELECT id FROM old WHERE flags & 32 = 32))
),
history AS (
    DELETE FROM {schema}.attempts WHERE job = ANY(ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM gone
