-- The jobs in some states (bits of ?1) and routes (?2; none: any), oldest first.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of ratchet_jobs.
SELECT id FROM ratchet_jobs
WHERE id > ?3 AND (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
ORDER BY id
LIMIT ?4
