-- As list_oldest, of the children of a batch (?5), with a tag (?6) if that is not none. [batch.filter] [page.order] [page.walk]
-- ratchet_batch_jobs_batch, read in its order.
SELECT job.id
FROM ratchet_batch_jobs AS member INDEXED BY ratchet_batch_jobs_batch
CROSS JOIN ratchet_jobs AS job ON job.id = member.job
WHERE member.batch = ?5 AND member.job > ?3 AND (?1 >> job.state) & 1
  AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
  AND (?6 IS NULL OR EXISTS (
      SELECT 1 FROM ratchet_job_tags AS tagged WHERE tagged.tag = ?6 AND tagged.job = member.job))
ORDER BY member.job
LIMIT ?4
