-- Deletes the longest finished jobs of a state with all they left, but not their idempotency keys, nor
-- those that an unfinished child may read. (flags: 16 it has children)
-- [purge.old] [purge.awaited] [purge.keys] [link.kept] jobs_finished, read in its order, links_parent
-- and primary keys: OFFSET 0 keeps the planner from hashing a whole table.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
old AS MATERIALIZED (
    SELECT job.id, job.flags FROM {schema}.jobs AS job
    WHERE job.state = $1 AND job.state >= 4
      AND job.finished_at < (SELECT now FROM clock) - $2::bigint
      AND (job.flags & 16 = 0 OR NOT EXISTS (
          SELECT FROM {schema}.links AS link
          CROSS JOIN LATERAL (
              SELECT state FROM {schema}.jobs AS child WHERE child.id = link.child OFFSET 0
          ) AS child
          WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4
          OFFSET 0))
    ORDER BY job.finished_at, job.id
    LIMIT $3
    FOR UPDATE OF job SKIP LOCKED
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
