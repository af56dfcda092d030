-- As list_newest, for failed and cancelled jobs only: few among many, so not to be looked for in the
-- whole table, which OFFSET 0 prevents. [page.order] [page.walk] [page.filter] jobs_finished.
SELECT id FROM (
    SELECT id FROM {schema}.jobs
    WHERE state >= 4 AND state IN (5, 6) AND state = ANY($1::smallint[])
      AND ($3::uuid IS NULL OR id < $3) AND ($2::integer[] IS NULL OR route = ANY($2))
    OFFSET 0
) AS ended
ORDER BY id DESC
LIMIT $4
