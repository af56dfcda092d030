-- The jobs of each route, by state. [queue.list]
-- Reads every row of ratchet_jobs once: for operators, not for loops.
SELECT route, state, count(*) FROM ratchet_jobs GROUP BY route, state
