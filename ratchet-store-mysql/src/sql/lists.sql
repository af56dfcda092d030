-- Lists and counts of jobs by a filter.

-- name: list_oldest list_newest
-- Lists the jobs in given states ($1), and of given routes ($3) if $2, after the job $4, in the
-- order of the page. [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs, also
-- backwards.
SELECT id FROM {schema}.jobs FORCE INDEX (PRIMARY)
WHERE id {behind} $4 AND state IN ($1) AND (NOT $2 OR route IN ($3))
ORDER BY id{descending}
LIMIT $5

-- name: list_batch_oldest list_batch_newest
-- As list_oldest, for the children of the batch $6, with the tag $8 if $7. [batch.filter]
-- [page.order] [page.walk] batch_jobs_batch, read in its order or backwards.
SELECT child.job
FROM {schema}.batch_jobs AS child FORCE INDEX (batch_jobs_batch)
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = child.job
WHERE child.batch = $6 AND child.job {behind} $4
  AND (NOT $7 OR EXISTS (SELECT 1 FROM {schema}.job_tags AS tagged
                         WHERE tagged.tag = $8 AND tagged.job = child.job))
  AND job.state IN ($1) AND (NOT $2 OR job.route IN ($3))
ORDER BY child.job{descending}
LIMIT $5

-- name: list_ended_oldest list_ended_newest
-- As list_oldest, for failed and cancelled jobs only. These are few among many jobs.
-- [page.order] [page.walk] [page.filter] [act.select] jobs_state.
SELECT id FROM {schema}.jobs FORCE INDEX (jobs_state)
WHERE state IN (5, 6) AND state IN ($1) AND id {behind} $4 AND (NOT $2 OR route IN ($3))
ORDER BY id{descending}
LIMIT $5

-- name: list_front_oldest list_front_newest
-- As list_oldest, among the first $6 jobs only, which is enough if most of them match.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs, also backwards.
SELECT front.id
FROM (SELECT id, state, route FROM {schema}.jobs FORCE INDEX (PRIMARY)
      WHERE id {behind} $4
      ORDER BY id{descending}
      LIMIT $6) AS front
WHERE front.state IN ($1) AND (NOT $2 OR front.route IN ($3))
ORDER BY front.id{descending}
LIMIT $5

-- name: list_tagged_oldest list_tagged_newest
-- As list_oldest, for the jobs with the tag $6. [page.order] [page.walk] [page.filter] [act.select]
-- Primary keys.
SELECT tagged.job
FROM {schema}.job_tags AS tagged FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = tagged.job
WHERE tagged.tag = $6 AND tagged.job {behind} $4
  AND job.state IN ($1) AND (NOT $2 OR job.route IN ($3))
ORDER BY tagged.job{descending}
LIMIT $5

-- name: list_unfinished_oldest list_unfinished_newest
-- As list_oldest, for unfinished jobs only. [page.order] [page.walk] [page.filter] [act.select]
-- jobs_state: as many entries as there are jobs in the wanted states.
SELECT id FROM {schema}.jobs FORCE INDEX (jobs_state)
WHERE state IN (0, 1, 2, 3) AND state IN ($1) AND id {behind} $4 AND (NOT $2 OR route IN ($3))
ORDER BY id{descending}
LIMIT $5

-- name: count_matching
-- Counts the jobs in given states ($1), and of given routes ($3) if $2, by state. [count.filter]
-- Reads every entry of an index once: for operators, not for loops.
SELECT state, COUNT(*) FROM {schema}.jobs
WHERE state IN ($1) AND (NOT $2 OR route IN ($3))
GROUP BY state

-- name: count_tagged
-- As count_matching, for the jobs with the tag $4. [count.filter] Primary keys.
SELECT job.state, COUNT(*)
FROM {schema}.job_tags AS tagged FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = tagged.job
WHERE tagged.tag = $4 AND job.state IN ($1) AND (NOT $2 OR job.route IN ($3))
GROUP BY job.state

-- name: count_batch
-- As count_matching, for the children of the batch $4, with the tag $6 if $5. [count.filter]
-- batch_jobs_batch and primary keys.
SELECT job.state, COUNT(*)
FROM {schema}.batch_jobs AS child FORCE INDEX (batch_jobs_batch)
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = child.job
WHERE child.batch = $4 AND job.state IN ($1) AND (NOT $2 OR job.route IN ($3))
  AND (NOT $5 OR EXISTS (SELECT 1 FROM {schema}.job_tags AS tagged
                         WHERE tagged.tag = $6 AND tagged.job = child.job))
GROUP BY job.state
