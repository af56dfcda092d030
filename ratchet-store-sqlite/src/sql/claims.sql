-- Claims: claims jobs, and settles, reports on and reclaims them.

-- name: claim_streams
-- Returns the wanted routes and priorities with due jobs, and the first job of each. A job in turn
-- counts as due, also if the clock was set back since it got its turn, and a parked job does not.
-- Returns no row for a node (?3) that is stored as not active. The last column says whether fair
-- keys have limits. [claim.due] [claim.match] [claim.paused] [claim.live] Needs one seek of
-- ratchet_jobs_claim per wanted route and priority, at no cost per job; with fair keys instead one
-- of ratchet_jobs_turn, and one of ratchet_jobs_asleep if there is no turn. 4611686018427387904 is
-- ratchet_core::fair::FIRST_PARKED.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0))
SELECT route.id, level.priority, head.run_at, head.id, route.fair,
       EXISTS (SELECT 1 FROM ratchet_fair_limits)
FROM json_each(?1) AS wanted
CROSS JOIN ratchet_routes AS route ON route.id = wanted.value
CROSS JOIN level
CROSS JOIN ratchet_jobs AS head ON head.id = CASE WHEN route.fair THEN coalesce(
    (SELECT job.id FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_turn
     WHERE job.state = 0 AND job.turn IS NOT NULL AND job.route = route.id
       AND job.priority = level.priority AND job.turn < 4611686018427387904
     ORDER BY job.turn, job.fair_key, job.id
     LIMIT 1),
    (SELECT sleeper.id FROM ratchet_jobs AS sleeper INDEXED BY ratchet_jobs_asleep
     WHERE sleeper.state = 0 AND sleeper.turn IS NULL AND sleeper.fair_key IS NOT NULL
       AND sleeper.route = route.id AND sleeper.run_at <= ?2
     ORDER BY sleeper.run_at, sleeper.id
     LIMIT 1)
) ELSE (
    SELECT job.id FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_claim
    WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
      AND job.run_at <= ?2
    ORDER BY job.run_at, job.id
    LIMIT 1
) END
WHERE route.queue NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 0)
  AND route.kind NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 1)
  AND NOT EXISTS (SELECT 1 FROM ratchet_nodes WHERE node = ?3 AND status <> 1)

-- name: claim_due
-- Returns the next due jobs of one route and priority, in claim order. [claim.due] [claim.order]
-- Reads one range of ratchet_jobs_claim in its order, without a sort and at no cost per waiting
-- job.
SELECT run_at, id
FROM ratchet_jobs INDEXED BY ratchet_jobs_claim
WHERE state = 0 AND route = ?1 AND priority = ?2 AND run_at <= ?3 AND (run_at, id) > (?4, ?5)
ORDER BY run_at, id
LIMIT ?6

-- name: claim_shared_streams
-- As claim_streams, for shared routes (?1), without the jobs of these queues (?4, a JSON array).
-- [claim.match] [claim.paused] [claim.live] Needs one seek of ratchet_jobs_claim per route and
-- priority, and reads the jobs of paused and excluded queues before the first other job.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0))
SELECT route.id, level.priority, head.run_at, head.id
FROM json_each(?1) AS wanted
CROSS JOIN ratchet_routes AS route ON route.id = wanted.value
CROSS JOIN level
CROSS JOIN ratchet_jobs AS head ON head.id = (
    SELECT job.id FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_claim
    WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
      AND job.run_at <= ?2
      AND coalesce(job.queue, '') NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 0)
      AND coalesce(job.queue, '') NOT IN (SELECT value FROM json_each(?4))
    ORDER BY job.run_at, job.id
    LIMIT 1)
WHERE route.kind NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 1)
  AND NOT EXISTS (SELECT 1 FROM ratchet_nodes WHERE node = ?3 AND status <> 1)

-- name: claim_shared_due
-- As claim_due, for a shared route, without the jobs of these queues (?7, a JSON array).
-- [claim.order] [claim.match] [claim.paused] Reads one range of ratchet_jobs_claim in its order.
SELECT run_at, id
FROM ratchet_jobs INDEXED BY ratchet_jobs_claim
WHERE state = 0 AND route = ?1 AND priority = ?2 AND run_at <= ?3 AND (run_at, id) > (?4, ?5)
  AND coalesce(queue, '') NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 0)
  AND coalesce(queue, '') NOT IN (SELECT value FROM json_each(?7))
ORDER BY run_at, id
LIMIT ?6

-- name: claim_queue_streams
-- As claim_streams, for these queues (?4, a JSON array) in shared routes (?1), and with the queue.
-- [claim.match] [claim.paused] [claim.live] Needs one seek of ratchet_jobs_queue per queue, route
-- and priority, at no cost per job.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0))
SELECT route.id, level.priority, head.run_at, head.id, queue.value
FROM json_each(?4) AS queue
CROSS JOIN json_each(?1) AS wanted
CROSS JOIN ratchet_routes AS route ON route.id = wanted.value
CROSS JOIN level
CROSS JOIN ratchet_jobs AS head ON head.id = (
    SELECT job.id FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_queue
    WHERE job.state = 0 AND job.queue = queue.value AND job.route = route.id
      AND job.priority = level.priority AND job.run_at <= ?2
    ORDER BY job.run_at, job.id
    LIMIT 1)
WHERE queue.value NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 0)
  AND route.kind NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 1)
  AND NOT EXISTS (SELECT 1 FROM ratchet_nodes WHERE node = ?3 AND status <> 1)

-- name: claim_queue_due
-- As claim_due, for one queue (?7) in a shared route. [claim.order] Reads one range of
-- ratchet_jobs_queue in its order.
SELECT run_at, id
FROM ratchet_jobs INDEXED BY ratchet_jobs_queue
WHERE state = 0 AND queue = ?7 AND route = ?1 AND priority = ?2 AND run_at <= ?3
  AND (run_at, id) > (?4, ?5)
ORDER BY run_at, id
LIMIT ?6

-- name: claim_turns
-- Returns the next jobs with a fair key of one route and priority, in the order of their turns,
-- without the parked ones. [fair.turn] [fair.limit.others] Reads one range of ratchet_jobs_turn in its order.
SELECT run_at, id, turn, fair_key
FROM ratchet_jobs INDEXED BY ratchet_jobs_turn
WHERE state = 0 AND turn IS NOT NULL AND route = ?1 AND priority = ?2
  AND (turn, fair_key, id) > (?3, ?4, ?5) AND turn < 4611686018427387904
ORDER BY turn, fair_key, id
LIMIT ?6

-- name: find_turns
-- Returns the first turn of a route (?1) and priority (?2), and the last turn of a fair key (?3)
-- there that is below ?4, with its cost. The first turn is none of a parked job. [fair.turn]
-- [fair.bound] [fair.weight] [fair.idle] One seek of ratchet_jobs_turn and one of ratchet_jobs_key.
SELECT (SELECT turn FROM ratchet_jobs INDEXED BY ratchet_jobs_turn
        WHERE state = 0 AND turn IS NOT NULL AND route = ?1 AND priority = ?2
          AND turn < 4611686018427387904
        ORDER BY turn LIMIT 1),
       last.turn, last.fair_cost
FROM (SELECT 1)
LEFT JOIN ratchet_jobs AS last ON last.id = (
    SELECT id FROM ratchet_jobs INDEXED BY ratchet_jobs_key
    WHERE state = 0 AND turn IS NOT NULL AND route = ?1 AND priority = ?2 AND fair_key = ?3
      AND turn < ?4
    ORDER BY turn DESC, id DESC LIMIT 1)

-- name: find_sleepers
-- Returns the due jobs with a fair key, but without a turn, of these routes (?1, a JSON array), the
-- longest due first, at most ?3. [fair.due] [claim.paused] Reads the first ?3 jobs of each route from
-- ratchet_jobs_asleep, in its order, so that the cost does not depend on how many jobs sleep.
SELECT job.id, job.route, job.priority, job.fair_key, job.fair_cost, job.run_at
FROM json_each(?1) AS wanted
CROSS JOIN ratchet_routes AS route ON route.id = wanted.value
CROSS JOIN ratchet_jobs AS job ON job.id IN (
    SELECT sleeper.id FROM ratchet_jobs AS sleeper INDEXED BY ratchet_jobs_asleep
    WHERE sleeper.state = 0 AND sleeper.turn IS NULL AND sleeper.fair_key IS NOT NULL
      AND sleeper.route = route.id AND sleeper.run_at <= ?2
    ORDER BY sleeper.run_at, sleeper.id
    LIMIT ?3)
WHERE route.fair AND route.queue NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 0)
  AND route.kind NOT IN (SELECT name FROM ratchet_pauses WHERE scope = 1)
ORDER BY job.run_at, job.id
LIMIT ?3

-- name: give_turn
-- Gives a pending job a turn. [fair.due] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET turn = ?2 WHERE id = ?1 AND state = 0

-- name: claim_read
-- Returns what the claim of a pending job will contain, with the payload if ?2 is true.
-- [claim.running] [claim.whole] [claim.version] Uses primary keys.
SELECT job.claim_seq, job.route, job.priority, job.run_at, job.attempts, job.crash_count,
       data.id, data.retry, data.timeout, data.stall_timeout, data.traceparent, data.tracestate,
       CASE WHEN ?2 THEN data.payload END, job.data, job.flags,
       data.lane, data.payload_version, job.queue
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_data AS data ON data.id = job.data
WHERE job.id = ?1 AND job.state = 0

-- name: claim_job
-- Claims a pending job for a node, which uses its turn up. [claim.exclusive] [claim.running]
-- [fair.turn] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = 3, claim_seq = claim_seq + 1, node = ?2, claimed_at = ?3, last_report = NULL,
    cancel_requested = 0, turn = NULL
WHERE id = ?1 AND state = 0

-- name: fail_unreadable
-- Makes a pending job with an unreadable row a dead letter, so that it affects only itself.
-- [errors.poison] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = 5, claim_seq = claim_seq + 1, settled_seq = claim_seq + 1, finished_at = ?2, turn = NULL
WHERE id = ?1 AND state = 0

-- name: load_checkpoint
-- Returns the last checkpoint of a job. [claim.whole] Uses the primary key of ratchet_job_notes.
SELECT checkpoint FROM ratchet_job_notes WHERE job = ?1

-- name: load_input
-- Returns the payload and the checkpoint of a claim's job, if the claim is still held. [claim.load]
-- Uses primary keys.
SELECT data.payload, notes.checkpoint
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_data AS data ON data.id = job.data
LEFT JOIN ratchet_job_notes AS notes ON notes.job = job.id
WHERE job.id = ?1 AND job.state = 3 AND job.claim_seq = ?2 AND job.node IS ?3
  AND coalesce(job.claimed_at, 0) = ?4

-- name: read_claim
-- Returns what a settlement or a report needs to know about a job's claim. [settle.token]
-- [settle.repeat] [report.token] Also returns the fair key if any key has a limit.
-- [fair.limit.free] Uses the primary key of ratchet_jobs.
SELECT state, claim_seq, settled_seq, cancel_requested, claimed_at, node, data, flags, route,
       CASE WHEN fair_key IS NOT NULL AND EXISTS (SELECT 1 FROM ratchet_fair_limits) THEN fair_key END
FROM ratchet_jobs
WHERE id = ?1

-- name: settle_job
-- Ends a claim, and puts its job into the next state. [settle.effect] [settle.token]
-- [settle.cancel] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = ?3, run_at = coalesce(?4, run_at), attempts = attempts + ?5, settled_seq = claim_seq,
    finished_at = ?6, ran_for_us = ?7
WHERE id = ?1 AND state = 3 AND claim_seq = ?2

-- name: find_settler
-- Returns the node and the time of an ended claim. [settle.repeat] Uses the primary key of
-- ratchet_attempts.
SELECT node, claimed_at FROM ratchet_attempts WHERE job = ?1 AND seq = ?2

-- name: add_attempt
-- Adds an ended claim to a job's history. [settle.history] [reclaim.requeue]
INSERT INTO ratchet_attempts (job, seq, outcome, claimed_at, ended_at, ran_for_us, node, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: keep_result
-- Stores the result of a job. [settle.effect] Uses the primary key of ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, result) VALUES (?1, ?2)
ON CONFLICT (job) DO UPDATE SET result = excluded.result

-- name: report_life
-- Restarts the stall timeout of a claim. The job has begun, so the caller deletes its expiry.
-- [report.life] [report.token] [expiry.begun] Uses the primary key of ratchet_jobs; no index
-- contains last_report.
UPDATE ratchet_jobs SET last_report = ?3, flags = flags - (flags & {expires})
WHERE id = ?1 AND state = 3 AND claim_seq = ?2

-- name: keep_progress
-- Replaces the progress of a job. [report.progress] Uses the primary key of ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, percent, message) VALUES (?1, ?2, ?3)
ON CONFLICT (job) DO UPDATE SET percent = excluded.percent, message = excluded.message

-- name: keep_checkpoint
-- Replaces the checkpoint of a job. [report.progress] Uses the primary key of ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, checkpoint) VALUES (?1, ?2)
ON CONFLICT (job) DO UPDATE SET checkpoint = excluded.checkpoint

-- name: running_jobs
-- Returns every running job, in order of id, with its fair key if any key has a limit.
-- [reclaim.dead] [reclaim.start] [fair.limit.free] Uses
-- ratchet_jobs_running, and reads one entry per claim, however many jobs there are.
SELECT id, claim_seq, crash_count, cancel_requested, claimed_at, last_report, node, data, flags,
       route,
       CASE WHEN fair_key IS NOT NULL AND EXISTS (SELECT 1 FROM ratchet_fair_limits) THEN fair_key END
FROM ratchet_jobs INDEXED BY ratchet_jobs_running
WHERE state = 3
ORDER BY id

-- name: timeouts_of
-- Returns the timeouts of a running job that has any. [reclaim.stall] [reclaim.overdue] Uses the
-- primary key.
SELECT timeout, stall_timeout FROM ratchet_job_data WHERE id = ?1

-- name: reclaim_job
-- Reclaims a claim, and puts its job into the next state. [reclaim.requeue] [reclaim.once] Uses the
-- primary key of ratchet_jobs.
UPDATE ratchet_jobs
SET state = ?3, crash_count = ?4, finished_at = ?5
WHERE id = ?1 AND state = 3 AND claim_seq = ?2

-- name: disown_job
-- Removes the node from a job that crashed too often. The job stays running until a settlement
-- fails it. [reclaim.exhausted] Uses the primary key.
UPDATE ratchet_jobs SET node = NULL, crash_count = ?3 WHERE id = ?1 AND state = 3 AND claim_seq = ?2
