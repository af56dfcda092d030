-- As list_oldest, among the first ?5 jobs only: where most of them match, that is all it takes.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of ratchet_jobs.
SELECT id FROM (
    SELECT id, state, route FROM ratchet_jobs WHERE id > ?3 ORDER BY id LIMIT ?5
)
WHERE (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
ORDER BY id
LIMIT ?4
