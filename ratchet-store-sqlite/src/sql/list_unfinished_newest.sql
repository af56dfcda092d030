-- As list_newest, for unfinished jobs only: not to be looked for among all that have ended.
-- [page.order] [page.walk] [page.filter] [act.select] ratchet_jobs_claim, ratchet_jobs_waiting,
-- ratchet_jobs_running: as many entries as there are of the states asked for.
SELECT id FROM (
    SELECT id, route FROM ratchet_jobs INDEXED BY ratchet_jobs_claim
    WHERE state = 0 AND ?1 & 1
    UNION ALL
    SELECT id, route FROM ratchet_jobs INDEXED BY ratchet_jobs_waiting
    WHERE state IN (1, 2) AND (?1 >> state) & 1
    UNION ALL
    SELECT id, route FROM ratchet_jobs INDEXED BY ratchet_jobs_running
    WHERE state = 3 AND ?1 & 8
)
WHERE id < ?3 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
ORDER BY id DESC
LIMIT ?4
