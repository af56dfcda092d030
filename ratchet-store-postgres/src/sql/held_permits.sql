-- How many permits these resources ($1; none: all) have and how many running jobs hold one of them.
-- [permit.max] [permit.free] [permit.list]
-- In a claim, a statement of its own after the one that locks the resources: it sees what was
-- committed until then. Primary key; the routes, which are few; jobs_running: as many rows as are
-- held, since the count of each route is a subselect of its own.
SELECT permit.resource, permit.max_held,
       (SELECT coalesce(sum((
            SELECT count(*) FROM {schema}.jobs AS job
            WHERE job.state = 3 AND job.route = route.id
        )), 0)::bigint
        FROM {schema}.routes AS route
        WHERE route.permit = permit.resource)
FROM {schema}.permits AS permit
WHERE $1::text[] IS NULL OR permit.resource = ANY($1)
ORDER BY permit.resource
