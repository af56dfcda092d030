-- As count_matching, for the children of a batch ($3), with a tag ($4) if that is not none: only they
-- are read, one lookup after the other, which OFFSET 0 holds the planner to. [count.filter]
-- batch_jobs_batch and primary keys.
SELECT found.state, count(*)
FROM {schema}.batch_jobs AS member
CROSS JOIN LATERAL (
    SELECT job.state FROM {schema}.jobs AS job
    WHERE job.id = member.job AND job.state + 0 = ANY($1::smallint[])
      AND ($2::integer[] IS NULL OR job.route = ANY($2))
    OFFSET 0
) AS found
WHERE member.batch = $3
  AND ($4::text IS NULL OR EXISTS (
      SELECT FROM {schema}.job_tags AS tagged WHERE tagged.tag = $4 AND tagged.job = member.job))
GROUP BY found.state
