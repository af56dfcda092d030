-- The jobs of each route, by state. [queue.list]
-- Reads every row of jobs once: for operators, not for loops.
SELECT route, state, COUNT_BIG(*) FROM {schema}.jobs GROUP BY route, state
