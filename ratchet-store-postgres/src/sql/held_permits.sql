-- How many permits these resources ($1; none: all) have and how many running jobs hold one of them.
-- [permit.max] [permit.free] [permit.list]
-- In a claim, a statement of its own after the one that locks the resources: it sees what was
-- committed until then. Primary key; the routes, which are few, once; jobs_permits: as many rows as
-- are held, since the count of each route is a subselect of its own.
WITH held AS MATERIALIZED (
    SELECT route.permit AS resource, sum((
        SELECT count(*) FROM {schema}.jobs AS job
        WHERE job.state = 3 AND job.flags & 128 <> 0 AND job.route = route.id
    ))::bigint AS held
    FROM {schema}.routes AS route
    WHERE route.permit <> '' AND ($1::text[] IS NULL OR route.permit = ANY($1))
    GROUP BY route.permit
)
SELECT permit.resource, permit.max_held, coalesce(held.held, 0)
FROM {schema}.permits AS permit
LEFT JOIN held ON held.resource = permit.resource
WHERE $1::text[] IS NULL OR permit.resource = ANY($1)
ORDER BY permit.resource
