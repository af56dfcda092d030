-- The longest finished jobs of a state behind one that was looked at (?3, ?4).
-- [archive.old] [archive.poison] ratchet_jobs_finished, read in its order.
SELECT job.id, job.data, job.finished_at, job.flags
FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_finished
WHERE job.state = ?1 AND job.state >= 4 AND job.finished_at < ?2
  AND (job.finished_at, job.id) > (?3, ?4)
ORDER BY job.finished_at, job.id
LIMIT ?5
