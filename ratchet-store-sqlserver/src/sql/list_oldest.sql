-- The jobs in some states (@P1: a bit for each) and, if @P2, in some routes (@P3), behind one (@P4),
-- oldest first, @P5 at most. [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs.
SELECT TOP (@P5) id FROM {schema}.jobs
WHERE id > CONVERT(binary(16), @P4) AND @P1 & POWER(2, state) <> 0
  AND (@P2 = 0 OR route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY id
