-- As count_matching, for the children of a batch (?3), with a tag (?4) if that is not none: only they
-- are read. [count.filter] ratchet_batch_jobs_batch and primary keys.
SELECT job.state, count(*)
FROM ratchet_batch_jobs AS member INDEXED BY ratchet_batch_jobs_batch
CROSS JOIN ratchet_jobs AS job ON job.id = member.job
WHERE member.batch = ?3 AND (?1 >> job.state) & 1
  AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
  AND (?4 IS NULL OR EXISTS (
      SELECT 1 FROM ratchet_job_tags AS tagged WHERE tagged.tag = ?4 AND tagged.job = member.job))
GROUP BY job.state
