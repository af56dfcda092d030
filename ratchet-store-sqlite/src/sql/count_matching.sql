-- The jobs in some states (bits of ?1) and routes (?2; none: any), by state. [count.filter]
-- Reads every row of ratchet_jobs once: for operators, not for loops.
SELECT state, count(*) FROM ratchet_jobs
WHERE (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
GROUP BY state
