-- As list_newest, among the first @P6 jobs only: where most of them match, that is all it takes.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs.
SELECT TOP (@P5) front.id
FROM (SELECT TOP (@P6) id, state, route FROM {schema}.jobs
      WHERE id < CONVERT(binary(16), @P4)
      ORDER BY id DESC) AS front
WHERE @P1 & POWER(2, front.state) <> 0
  AND (@P2 = 0 OR front.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY front.id DESC
