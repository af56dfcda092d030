-- How many permits these resources (@P1), or all (if @P2), have and how many running jobs hold one of
-- them. [permit.max] [permit.free] [permit.list]
-- In a claim, a statement of its own after the one that locks the resources: it sees what was
-- committed until then. Primary key; the routes, which are few; jobs_permits: as many rows as are held.
SELECT permit.resource, permit.max_held,
       (SELECT COUNT_BIG(*) FROM {schema}.routes AS route
        JOIN {schema}.jobs AS job ON job.state = 3 AND job.route = route.id
        WHERE route.permit = permit.resource)
FROM {schema}.permits AS permit
WHERE @P2 = 1 OR permit.resource IN (SELECT {name value} FROM OPENJSON(@P1))
ORDER BY permit.resource
