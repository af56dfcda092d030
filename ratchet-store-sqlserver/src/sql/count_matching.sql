-- The jobs in some states (@P1: a bit for each) and, if @P2, in some routes (@P3), by state.
-- [count.filter] Reads every row of jobs once: for operators, not for loops.
SELECT state, COUNT_BIG(*) FROM {schema}.jobs
WHERE @P1 & POWER(2, state) <> 0
  AND (@P2 = 0 OR route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
GROUP BY state
