-- Lists and counts of jobs by a filter.

-- name: list_oldest list_newest
-- Lists at most @P5 jobs in given states (@P1: a bit for each) and, if @P2, in given routes (@P3),
-- after the job @P4, in the order of the page. [page.order] [page.walk] [page.filter] [act.select]
-- Primary key of jobs, also backwards.
SELECT TOP (@P5) id FROM {schema}.jobs
WHERE id {behind} CONVERT(binary(16), @P4) AND @P1 & POWER(2, state) <> 0
  AND (@P2 = 0 OR route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY id{descending}

-- name: list_batch_oldest list_batch_newest
-- As list_oldest, for the children of the batch @P6, with the tag @P8 if @P7. [batch.filter]
-- [page.order] [page.walk] batch_jobs_batch.
SELECT TOP (@P5) member.job
FROM {schema}.batch_jobs AS member
JOIN {schema}.jobs AS job ON job.id = member.job
WHERE member.batch = CONVERT(binary(16), @P6) AND member.job {behind} CONVERT(binary(16), @P4)
  AND (@P7 = 0 OR EXISTS (SELECT 1 FROM {schema}.job_tags AS tagged
                          WHERE tagged.tag = @P8 AND tagged.job = member.job))
  AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY member.job{descending}

-- name: list_ended_oldest list_ended_newest
-- As list_oldest, for failed and cancelled jobs only. These are few among many jobs, so the
-- statement does not read the whole table. [page.order] [page.walk] [page.filter] [act.select]
-- jobs_finished.
SELECT TOP (@P5) id FROM {schema}.jobs
WHERE state >= 4 AND state IN (5, 6) AND @P1 & POWER(2, state) <> 0
  AND id {behind} CONVERT(binary(16), @P4)
  AND (@P2 = 0 OR route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY id{descending}

-- name: list_front_oldest list_front_newest
-- As list_oldest, among the first @P6 jobs only, which is enough if most of them match.
-- [page.order] [page.walk] [page.filter] [act.select] Primary key of jobs, also backwards.
SELECT TOP (@P5) front.id
FROM (SELECT TOP (@P6) id, state, route FROM {schema}.jobs
      WHERE id {behind} CONVERT(binary(16), @P4)
      ORDER BY id{descending}) AS front
WHERE @P1 & POWER(2, front.state) <> 0
  AND (@P2 = 0 OR front.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY front.id{descending}

-- name: list_tagged_oldest list_tagged_newest
-- As list_oldest, for the jobs with the tag @P6. Reads only those. [page.order] [page.walk]
-- [page.filter] [act.select] Primary keys.
SELECT TOP (@P5) tagged.job
FROM {schema}.job_tags AS tagged
JOIN {schema}.jobs AS job ON job.id = tagged.job
WHERE tagged.tag = @P6 AND tagged.job {behind} CONVERT(binary(16), @P4)
  AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY tagged.job{descending}

-- name: list_unfinished_oldest list_unfinished_newest
-- As list_oldest, for unfinished jobs only. Does not read the ended jobs. [page.order] [page.walk]
-- [page.filter] [act.select] jobs_claim, jobs_waiting, jobs_running: as many entries as there are
-- jobs in the wanted states.
SELECT TOP (@P5) unfinished.id
FROM (SELECT id, route FROM {schema}.jobs WHERE state = 0 AND @P1 & 1 <> 0
      UNION ALL
      SELECT id, route FROM {schema}.jobs WHERE state IN (1, 2) AND @P1 & POWER(2, state) <> 0
      UNION ALL
      SELECT id, route FROM {schema}.jobs WHERE state = 3 AND @P1 & 8 <> 0) AS unfinished
WHERE unfinished.id {behind} CONVERT(binary(16), @P4)
  AND (@P2 = 0 OR unfinished.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
ORDER BY unfinished.id{descending}

-- name: count_matching
-- Counts the jobs in given states (@P1: a bit for each) and, if @P2, in given routes (@P3), by
-- state. [count.filter] Reads every row of jobs once: for operators, not for loops.
SELECT state, COUNT_BIG(*) FROM {schema}.jobs
WHERE @P1 & POWER(2, state) <> 0
  AND (@P2 = 0 OR route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
GROUP BY state

-- name: count_tagged
-- As count_matching, for the jobs with the tag @P4. Reads only those. [count.filter] Primary keys.
SELECT job.state, COUNT_BIG(*)
FROM {schema}.job_tags AS tagged
JOIN {schema}.jobs AS job ON job.id = tagged.job
WHERE tagged.tag = @P4 AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
GROUP BY job.state

-- name: count_batch
-- As count_matching, for the children of the batch @P4, with the tag @P6 if @P5. Reads only those.
-- [count.filter] batch_jobs_batch and primary keys.
SELECT job.state, COUNT_BIG(*)
FROM {schema}.batch_jobs AS member
JOIN {schema}.jobs AS job ON job.id = member.job
WHERE member.batch = CONVERT(binary(16), @P4)
  AND @P1 & POWER(2, job.state) <> 0
  AND (@P2 = 0 OR job.route IN (SELECT CONVERT(int, value) FROM OPENJSON(@P3)))
  AND (@P5 = 0 OR EXISTS (SELECT 1 FROM {schema}.job_tags AS tagged
                          WHERE tagged.tag = @P6 AND tagged.job = member.job))
GROUP BY job.state
