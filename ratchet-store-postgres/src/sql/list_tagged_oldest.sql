-- As list_oldest, for the jobs with a tag ($5): only they are read, one lookup after the other, which
-- OFFSET 0 holds the planner to. [page.order] [page.walk] [page.filter] [act.select] Primary keys.
SELECT tagged.job
FROM {schema}.job_tags AS tagged
CROSS JOIN LATERAL (
    SELECT FROM {schema}.jobs AS job
    WHERE job.id = tagged.job AND job.state + 0 = ANY($1::smallint[])
      AND ($2::integer[] IS NULL OR job.route = ANY($2))
    OFFSET 0
) AS found
WHERE tagged.tag = $5
  AND tagged.job > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY tagged.job
LIMIT $4
