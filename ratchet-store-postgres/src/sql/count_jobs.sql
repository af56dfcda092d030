-- The jobs of each queue, by state. [queue.list]
-- Reads every row of jobs once: for operators, not for loops.
SELECT route.queue, counted.state, counted.jobs
FROM (SELECT route, state, count(*) AS jobs FROM {schema}.jobs GROUP BY route, state) AS counted
JOIN {schema}.routes AS route ON route.id = counted.route
