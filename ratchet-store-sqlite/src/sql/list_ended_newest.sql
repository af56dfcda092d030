-- As list_newest, for failed and cancelled jobs only: few among many, so not to be looked for in
-- the whole table. [page.order] [page.walk] [page.filter] ratchet_jobs_finished.
SELECT id FROM ratchet_jobs INDEXED BY ratchet_jobs_finished
WHERE state IN (5, 6) AND state >= 4 AND id < ?3
  AND (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
ORDER BY id DESC
LIMIT ?4
