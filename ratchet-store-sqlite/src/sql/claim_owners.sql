-- The nodes that own claims. [node.forget]
-- ratchet_jobs_running: as many rows as there are claims.
SELECT DISTINCT node
FROM ratchet_jobs INDEXED BY ratchet_jobs_running
WHERE state = 3 AND node IS NOT NULL
