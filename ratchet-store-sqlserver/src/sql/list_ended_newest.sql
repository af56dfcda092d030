-- As list_newest, for failed and cancelled jobs only: few among many, so not to be looked for in the
-- whole table. [page.order] [page.walk] [page.filter] [act.select] jobs_finished.
SELECT TOP (@P5) id FROM {schema}.jobs
WHERE state >= 4 AND state IN (5, 6) AND @P1 & POWER(2, state) <> 0
  AND id < CONVERT(binary(16), @P4)
  AND (@P2 = 0 OR route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY id DESC
