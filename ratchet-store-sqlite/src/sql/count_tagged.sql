-- As count_matching, for the jobs with a tag (?3): only they are read. The join keeps its order.
-- [count.filter] Primary keys.
SELECT job.state, count(*)
FROM ratchet_job_tags AS tagged
CROSS JOIN ratchet_jobs AS job
WHERE tagged.tag = ?3 AND job.id = tagged.job
  AND (?1 >> job.state) & 1 AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
GROUP BY job.state
