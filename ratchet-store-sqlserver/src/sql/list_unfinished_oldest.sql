-- As list_oldest, for unfinished jobs only: not to be looked for among all that have ended.
-- [page.order] [page.walk] [page.filter] [act.select]
-- jobs_claim, jobs_waiting, jobs_running: as many entries as there are of the states asked for.
SELECT TOP (@P5) unfinished.id
FROM (SELECT id, route FROM {schema}.jobs WHERE state = 0 AND @P1 & 1 <> 0
      UNION ALL
      SELECT id, route FROM {schema}.jobs WHERE state IN (1, 2) AND @P1 & POWER(2, state) <> 0
      UNION ALL
      SELECT id, route FROM {schema}.jobs WHERE state = 3 AND @P1 & 8 <> 0) AS unfinished
WHERE unfinished.id > CONVERT(binary(16), @P4)
  AND (@P2 = 0 OR unfinished.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY unfinished.id
