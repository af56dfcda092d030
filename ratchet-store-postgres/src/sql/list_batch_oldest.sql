-- As list_oldest, of the children of a batch ($5), with a tag ($6) if that is not none. [batch.filter] [page.order] [page.walk]
-- batch_jobs_batch, read in its order.
SELECT member.job
FROM {schema}.batch_jobs AS member
CROSS JOIN LATERAL (
    SELECT state, route FROM {schema}.jobs WHERE id = member.job OFFSET 0
) AS job
WHERE member.batch = $5
  AND member.job > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')
  AND ($6::text IS NULL OR EXISTS (
      SELECT FROM {schema}.job_tags AS tagged WHERE tagged.tag = $6 AND tagged.job = member.job))
  AND job.state = ANY($1::smallint[]) AND ($2::integer[] IS NULL OR job.route = ANY($2))
ORDER BY member.job
LIMIT $4
