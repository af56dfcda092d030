-- The jobs in some states (bits of ?1) and routes (?2; none: any), newest first.
-- [page.order] [page.walk] [page.filter] Primary key of ratchet_jobs, backwards.
SELECT id FROM ratchet_jobs
WHERE id < ?3 AND (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
ORDER BY id DESC
LIMIT ?4
