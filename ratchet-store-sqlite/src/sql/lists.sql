-- Lists and counts of jobs by a filter.

-- name: list_oldest list_newest
-- Lists the jobs in some states (bits of ?1) and routes (?2; NULL means any), after the id ?3, in
-- the order of the page. The last parameter of this and the following statements is the queue
-- (NULL means any), because a shared route has jobs of many queues. [page.order] [page.walk]
-- [page.filter] [act.select] Uses the primary key of ratchet_jobs, also backwards.
SELECT id FROM ratchet_jobs
WHERE id {behind} ?3 AND (?1 >> state) & 1
  AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
  AND (?5 IS NULL OR queue IS NULL OR queue = ?5)
ORDER BY id{descending}
LIMIT ?4

-- name: list_batch_oldest list_batch_newest
-- Lists like list_oldest, but only the jobs in a batch (?5), with a tag (?6) unless that is NULL.
-- [batch.filter] [page.order] [page.walk] Uses ratchet_batch_jobs_batch, read in its order or
-- backwards.
SELECT job.id
FROM ratchet_batch_jobs AS member INDEXED BY ratchet_batch_jobs_batch
CROSS JOIN ratchet_jobs AS job ON job.id = member.job
WHERE member.batch = ?5 AND member.job {behind} ?3 AND (?1 >> job.state) & 1
  AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
  AND (?7 IS NULL OR job.queue IS NULL OR job.queue = ?7)
  AND (?6 IS NULL OR EXISTS (
      SELECT 1 FROM ratchet_job_tags AS tagged WHERE tagged.tag = ?6 AND tagged.job = member.job))
ORDER BY member.job{descending}
LIMIT ?4

-- name: list_ended_oldest list_ended_newest
-- Lists like list_oldest, but only failed and cancelled jobs. These are few among many, so the
-- index is faster than the whole table. [page.order] [page.walk] [page.filter] [act.select] Uses
-- ratchet_jobs_finished.
SELECT id FROM ratchet_jobs INDEXED BY ratchet_jobs_finished
WHERE state IN (5, 6) AND state >= 4 AND id {behind} ?3
  AND (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
  AND (?5 IS NULL OR queue IS NULL OR queue = ?5)
ORDER BY id{descending}
LIMIT ?4

-- name: list_front_oldest list_front_newest
-- Lists like list_oldest, but only among the first ?5 jobs after the id ?3, which is enough if most
-- of these match. [page.order] [page.walk] [page.filter] [act.select] Uses the primary key of
-- ratchet_jobs, also backwards.
SELECT id FROM (
    SELECT id, state, route, queue FROM ratchet_jobs WHERE id {behind} ?3 ORDER BY id{descending} LIMIT ?5
)
WHERE (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
  AND (?6 IS NULL OR queue IS NULL OR queue = ?6)
ORDER BY id{descending}
LIMIT ?4

-- name: list_tagged_oldest list_tagged_newest
-- Lists like list_oldest, but only the jobs with a tag (?5), and reads only these. CROSS JOIN makes
-- SQLite keep this order of the tables. [page.order] [page.walk] [page.filter] [act.select] Uses
-- primary keys.
SELECT tagged.job
FROM ratchet_job_tags AS tagged
CROSS JOIN ratchet_jobs AS job
WHERE tagged.tag = ?5 AND tagged.job {behind} ?3 AND job.id = tagged.job
  AND (?1 >> job.state) & 1 AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
  AND (?6 IS NULL OR job.queue IS NULL OR job.queue = ?6)
ORDER BY tagged.job{descending}
LIMIT ?4

-- name: list_unfinished_oldest list_unfinished_newest
-- Lists like list_oldest, but only unfinished jobs, without reading the ended ones. [page.order]
-- [page.walk] [page.filter] [act.select] Uses ratchet_jobs_claim, ratchet_jobs_waiting and
-- ratchet_jobs_running, and reads one entry per job in the wanted states.
SELECT id FROM (
    SELECT id, route, queue FROM ratchet_jobs INDEXED BY ratchet_jobs_claim
    WHERE state = 0 AND ?1 & 1
    UNION ALL
    SELECT id, route, queue FROM ratchet_jobs INDEXED BY ratchet_jobs_waiting
    WHERE state IN (1, 2) AND (?1 >> state) & 1
    UNION ALL
    SELECT id, route, queue FROM ratchet_jobs INDEXED BY ratchet_jobs_running
    WHERE state = 3 AND ?1 & 8
)
WHERE id {behind} ?3 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
  AND (?5 IS NULL OR queue IS NULL OR queue = ?5)
ORDER BY id{descending}
LIMIT ?4

-- name: count_matching
-- Counts the jobs in some states (bits of ?1) and routes (?2; NULL means any) by state.
-- [count.filter] Reads every row of ratchet_jobs once: only operators use it, not the loops of
-- nodes.
SELECT state, count(*) FROM ratchet_jobs
WHERE (?1 >> state) & 1 AND (?2 IS NULL OR route IN (SELECT value FROM json_each(?2)))
  AND (?3 IS NULL OR queue IS NULL OR queue = ?3)
GROUP BY state

-- name: count_tagged
-- Counts like count_matching, but only the jobs with a tag (?3), and reads only these. CROSS JOIN
-- makes SQLite keep this order of the tables. [count.filter] Uses primary keys.
SELECT job.state, count(*)
FROM ratchet_job_tags AS tagged
CROSS JOIN ratchet_jobs AS job
WHERE tagged.tag = ?3 AND job.id = tagged.job
  AND (?1 >> job.state) & 1 AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
  AND (?4 IS NULL OR job.queue IS NULL OR job.queue = ?4)
GROUP BY job.state

-- name: count_batch
-- Counts like count_matching, but only the jobs in a batch (?3), with a tag (?4) unless that is
-- NULL, and reads only the jobs of the batch. [count.filter] Uses ratchet_batch_jobs_batch and
-- primary keys.
SELECT job.state, count(*)
FROM ratchet_batch_jobs AS member INDEXED BY ratchet_batch_jobs_batch
CROSS JOIN ratchet_jobs AS job ON job.id = member.job
WHERE member.batch = ?3 AND (?1 >> job.state) & 1
  AND (?2 IS NULL OR job.route IN (SELECT value FROM json_each(?2)))
  AND (?5 IS NULL OR job.queue IS NULL OR job.queue = ?5)
  AND (?4 IS NULL OR EXISTS (
      SELECT 1 FROM ratchet_job_tags AS tagged WHERE tagged.tag = ?4 AND tagged.job = member.job))
GROUP BY job.state
