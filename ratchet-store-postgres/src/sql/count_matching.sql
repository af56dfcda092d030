-- The jobs in some states and routes ($2; none: any), by state. [count.filter]
-- Reads every row of jobs once: for operators, not for loops.
SELECT state, count(*) FROM {schema}.jobs
WHERE state = ANY($1::smallint[]) AND ($2::integer[] IS NULL OR route = ANY($2))
GROUP BY state
