-- Lists and counts of jobs by a filter.

-- name: list_oldest list_newest
-- Lists the jobs in given states ($1) and routes ($2; NULL: any) after the job $3, in the order of
-- the page. The last parameter of this and the following statements is the queue (empty: any),
-- because a shared route has jobs of many queues. [page.order] [page.walk] [page.filter]
-- [act.select] Primary key of jobs, also backwards: + 0 keeps the planner from reading and sorting
-- all jobs of the states by another index while it has no statistics.
SELECT id FROM {schema}.jobs
WHERE id {behind} $3 AND state + 0 = ANY($1::smallint[])
  AND ($2::integer[] IS NULL OR route = ANY($2)) AND ($5 = '' OR coalesce(queue, $5) = $5)
ORDER BY id{descending}
LIMIT $4

-- name: list_batch_oldest list_batch_newest
-- As list_oldest, for the children of the batch $5, with the tag $7 if $6. [batch.filter]
-- [page.order] [page.walk] batch_jobs_batch, read in its order or backwards.
SELECT member.job
FROM {schema}.batch_jobs AS member
CROSS JOIN LATERAL (
    SELECT state, route, queue FROM {schema}.jobs WHERE id = member.job OFFSET 0
) AS job
WHERE member.batch = $5
  AND member.job {behind} $3
  AND (NOT $6::boolean OR EXISTS (
      SELECT FROM {schema}.job_tags AS tagged WHERE tagged.tag = $7 AND tagged.job = member.job))
  AND job.state = ANY($1::smallint[]) AND ($2::integer[] IS NULL OR job.route = ANY($2))
  AND ($8 = '' OR coalesce(job.queue, $8) = $8)
ORDER BY member.job{descending}
LIMIT $4

-- name: list_ended_oldest list_ended_newest
-- As list_oldest, for failed and cancelled jobs only. These are few among many jobs; OFFSET 0 keeps
-- the planner from reading the whole table. [page.order] [page.walk] [page.filter] [act.select]
-- jobs_finished.
SELECT id FROM (
    SELECT id FROM {schema}.jobs
    WHERE state >= 4 AND state IN (5, 6) AND state = ANY($1::smallint[])
      AND id {behind} $3 AND ($2::integer[] IS NULL OR route = ANY($2))
      AND ($5 = '' OR coalesce(queue, $5) = $5)
    OFFSET 0
) AS ended
ORDER BY id{descending}
LIMIT $4

-- name: list_front_oldest list_front_newest
-- As list_oldest, among the first $5 jobs only, which is enough if most of them match.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs, also backwards.
SELECT id FROM (
    SELECT id, state, route, queue FROM {schema}.jobs
    WHERE id {behind} $3
    ORDER BY id{descending}
    LIMIT $5
) AS front
WHERE state = ANY($1::smallint[]) AND ($2::integer[] IS NULL OR route = ANY($2))
  AND ($6 = '' OR coalesce(queue, $6) = $6)
ORDER BY id{descending}
LIMIT $4

-- name: list_tagged_oldest list_tagged_newest
-- As list_oldest, for the jobs with the tag $5. OFFSET 0 makes the planner read only those, one
-- lookup after the other. [page.order] [page.walk] [page.filter] [act.select] Primary keys.
SELECT tagged.job
FROM {schema}.job_tags AS tagged
CROSS JOIN LATERAL (
    SELECT FROM {schema}.jobs AS job
    WHERE job.id = tagged.job AND job.state + 0 = ANY($1::smallint[])
      AND ($2::integer[] IS NULL OR job.route = ANY($2))
      AND ($6 = '' OR coalesce(job.queue, $6) = $6)
    OFFSET 0
) AS found
WHERE tagged.tag = $5
  AND tagged.job {behind} $3
ORDER BY tagged.job{descending}
LIMIT $4

-- name: list_unfinished_oldest list_unfinished_newest
-- As list_oldest, for unfinished jobs only. OFFSET 0 keeps the planner from reading the ended jobs.
-- [page.order] [page.walk] [page.filter] [act.select] jobs_claim, jobs_waiting, jobs_running: as
-- many entries as there are jobs in the wanted states.
SELECT id FROM (
    SELECT id, state, route, queue FROM {schema}.jobs
    WHERE state = 0 AND 0::smallint = ANY($1::smallint[])
    UNION ALL
    SELECT id, state, route, queue FROM {schema}.jobs WHERE state IN (1, 2)
    UNION ALL
    SELECT id, state, route, queue FROM {schema}.jobs
    WHERE state = 3 AND 3::smallint = ANY($1::smallint[])
    OFFSET 0
) AS unfinished
WHERE id {behind} $3 AND state = ANY($1::smallint[])
  AND ($2::integer[] IS NULL OR route = ANY($2)) AND ($5 = '' OR coalesce(queue, $5) = $5)
ORDER BY id{descending}
LIMIT $4

-- name: count_matching
-- Counts the jobs in given states ($1) and routes ($2; NULL: any) by state. [count.filter] Reads
-- every row of jobs once: for operators, not for loops.
SELECT state, count(*) FROM {schema}.jobs
WHERE state = ANY($1::smallint[]) AND ($2::integer[] IS NULL OR route = ANY($2))
  AND ($3 = '' OR coalesce(queue, $3) = $3)
GROUP BY state

-- name: count_tagged
-- As count_matching, for the jobs with the tag $3. OFFSET 0 makes the planner read only those, one
-- lookup after the other. [count.filter] Primary keys.
SELECT found.state, count(*)
FROM {schema}.job_tags AS tagged
CROSS JOIN LATERAL (
    SELECT job.state FROM {schema}.jobs AS job
    WHERE job.id = tagged.job AND job.state + 0 = ANY($1::smallint[])
      AND ($2::integer[] IS NULL OR job.route = ANY($2))
      AND ($4 = '' OR coalesce(job.queue, $4) = $4)
    OFFSET 0
) AS found
WHERE tagged.tag = $3
GROUP BY found.state

-- name: count_batch
-- As count_matching, for the children of the batch $3, with the tag $5 if $4. OFFSET 0 makes the
-- planner read only those, one lookup after the other. [count.filter] batch_jobs_batch and primary
-- keys.
SELECT found.state, count(*)
FROM {schema}.batch_jobs AS member
CROSS JOIN LATERAL (
    SELECT job.state FROM {schema}.jobs AS job
    WHERE job.id = member.job AND job.state + 0 = ANY($1::smallint[])
      AND ($2::integer[] IS NULL OR job.route = ANY($2))
      AND ($6 = '' OR coalesce(job.queue, $6) = $6)
    OFFSET 0
) AS found
WHERE member.batch = $3
  AND (NOT $4::boolean OR EXISTS (
      SELECT FROM {schema}.job_tags AS tagged WHERE tagged.tag = $5 AND tagged.job = member.job))
GROUP BY found.state
