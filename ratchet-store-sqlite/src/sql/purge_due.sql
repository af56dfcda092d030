-- The longest finished jobs of a state. [purge.old] ratchet_jobs_finished, read in its order.
SELECT job.id, job.data, job.flags
FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_finished
WHERE job.state = ?1 AND job.state >= 4 AND job.finished_at < ?2
ORDER BY job.finished_at, job.id
LIMIT ?3
