-- As count_matching, for the jobs with a tag ($3): only they are read, one lookup after the other,
-- which OFFSET 0 holds the planner to. [count.filter] Primary keys.
SELECT found.state, count(*)
FROM {schema}.job_tags AS tagged
CROSS JOIN LATERAL (
    SELECT job.state FROM {schema}.jobs AS job
    WHERE job.id = tagged.job AND job.state + 0 = ANY($1::smallint[])
      AND ($2::integer[] IS NULL OR job.route = ANY($2))
    OFFSET 0
) AS found
WHERE tagged.tag = $3
GROUP BY found.state
