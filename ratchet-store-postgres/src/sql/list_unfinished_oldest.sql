-- As list_oldest, for unfinished jobs only: not to be looked for among all that have ended, which
-- OFFSET 0 prevents. [page.order] [page.walk] [page.filter] [act.select]
-- jobs_claim, jobs_waiting, jobs_running: as many entries as there are of the states asked for.
SELECT id FROM (
    SELECT id, state, route FROM {schema}.jobs
    WHERE state = 0 AND 0::smallint = ANY($1::smallint[])
    UNION ALL
    SELECT id, state, route FROM {schema}.jobs WHERE state IN (1, 2)
    UNION ALL
    SELECT id, state, route FROM {schema}.jobs
    WHERE state = 3 AND 3::smallint = ANY($1::smallint[])
    OFFSET 0
) AS unfinished
WHERE ($3::uuid IS NULL OR id > $3) AND state = ANY($1::smallint[])
  AND ($2::integer[] IS NULL OR route = ANY($2))
ORDER BY id
LIMIT $4
