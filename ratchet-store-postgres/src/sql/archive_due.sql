-- The longest finished jobs of a state behind one that was looked at ($3, $4), which stay as they are
-- until the transaction ends. [archive.old] [archive.race] [archive.poison]
-- jobs_finished, read in its order.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT job.id, job.finished_at
FROM {schema}.jobs AS job
WHERE job.state = $1 AND job.state >= 4
  AND job.finished_at < (SELECT now FROM clock) - $2::bigint
  AND (job.finished_at, job.id) > ($3::bigint, $4::uuid)
ORDER BY job.finished_at, job.id
LIMIT $5
FOR UPDATE OF job SKIP LOCKED
