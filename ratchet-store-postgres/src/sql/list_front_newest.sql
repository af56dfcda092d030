-- As list_newest, among the first $5 jobs only: where most of them match, that is all it takes.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs.
SELECT id FROM (
    SELECT id, state, route FROM {schema}.jobs
    WHERE $3::uuid IS NULL OR id < $3
    ORDER BY id DESC
    LIMIT $5
) AS front
WHERE state = ANY($1::smallint[]) AND ($2::integer[] IS NULL OR route = ANY($2))
ORDER BY id DESC
LIMIT $4
