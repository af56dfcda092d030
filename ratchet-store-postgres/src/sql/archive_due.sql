-- The longest finished jobs of a state behind one that was looked at ($3, $4) that no unfinished child
-- may read, which stay as they are until the transaction ends. (flags: 16 it has children)
-- [archive.old] [archive.awaited] [archive.race] [archive.poison] jobs_finished, read in its order,
-- links_parent and primary keys: OFFSET 0 keeps the planner from hashing a whole table.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT job.id, job.finished_at
FROM {schema}.jobs AS job
WHERE job.state = $1 AND job.state >= 4
  AND job.finished_at < (SELECT now FROM clock) - $2::bigint
  AND (job.finished_at, job.id) > ($3::bigint, $4::uuid)
  AND (job.flags & 16 = 0 OR NOT EXISTS (
      SELECT FROM {schema}.links AS link
      CROSS JOIN LATERAL (
          SELECT state FROM {schema}.jobs AS child WHERE child.id = link.child OFFSET 0
      ) AS child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4
      OFFSET 0))
ORDER BY job.finished_at, job.id
LIMIT $5
FOR UPDATE OF job SKIP LOCKED
