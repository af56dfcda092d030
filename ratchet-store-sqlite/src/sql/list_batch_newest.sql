-- As list_newest, of the children of a batch (?5). [batch.filter] [page.order] [page.walk]
-- ratchet_batch_jobs_batch, read backwards.
SELECT job.id
FROM ratchet_batch_jobs AS member INDEXED BY ratchet_batch_jobs_batch
CROSS JOIN ratchet_jobs AS job ON job.id = member.job
WHERE member.batch = ?5 AND member.job < ?3 AND (?1 >> job.state) & 1
  AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
ORDER BY member.job DESC
LIMIT ?4
