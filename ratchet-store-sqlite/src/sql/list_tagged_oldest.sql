-- As list_oldest, for the jobs with a tag (?5): only they are read. The join keeps its order.
-- [page.order] [page.walk] [page.filter] [act.select] Primary keys.
SELECT tagged.job
FROM ratchet_job_tags AS tagged
CROSS JOIN ratchet_jobs AS job
WHERE tagged.tag = ?5 AND tagged.job > ?3 AND job.id = tagged.job
  AND (?1 >> job.state) & 1 AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
ORDER BY tagged.job
LIMIT ?4
