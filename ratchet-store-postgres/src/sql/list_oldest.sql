-- The jobs in some states and routes ($2; none: any) behind one ($3; none: all), oldest first.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs.
SELECT id FROM {schema}.jobs
WHERE ($3::uuid IS NULL OR id > $3) AND state = ANY($1::smallint[])
  AND ($2::integer[] IS NULL OR route = ANY($2))
ORDER BY id
LIMIT $4
