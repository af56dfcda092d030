-- Lanes.

-- name: lane_exists
-- Whether a lane has unfinished jobs. [lane.head] Primary key of ratchet_lanes.
SELECT EXISTS (SELECT 1 FROM ratchet_lanes WHERE queue = ?1 AND lane = ?2)

-- name: next_in_lane
-- The next sequence of a lane. [lane.sequence] Primary key of ratchet_lanes.
INSERT INTO ratchet_lanes (queue, lane, last_seq) VALUES (?1, ?2, 1)
ON CONFLICT (queue, lane) DO UPDATE SET last_seq = last_seq + 1
RETURNING last_seq

-- name: enter_lane
-- Puts an unfinished job into its lane. [lane.sequence] [lane.requeue]
INSERT INTO ratchet_lane_jobs (job, queue, lane, seq) VALUES (?1, ?2, ?3, ?4)

-- name: lane_of
-- The queue and the lane a job was enqueued with. [lane.requeue] Primary keys.
SELECT route.queue, data.lane
FROM ratchet_jobs AS job
JOIN ratchet_routes AS route ON route.id = job.route
JOIN ratchet_job_data AS data ON data.id = job.data
WHERE job.id = ?1 AND data.lane IS NOT NULL

-- name: lane_head
-- The first unfinished job of a lane. [lane.head] [lane.promote] ratchet_lane_jobs_order.
SELECT job FROM ratchet_lane_jobs WHERE queue = ?1 AND lane = ?2 ORDER BY seq LIMIT 1

-- name: leave_lane
-- Takes a job that ends out of its lane. [lane.promote] [lane.cancel]
-- Primary key of ratchet_lane_jobs.
DELETE FROM ratchet_lane_jobs WHERE job = ?1 RETURNING queue, lane

-- name: promote_job
-- Lets a job be claimed that has become the head of its lane. [lane.promote]
-- Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = 0 WHERE id = ?1 AND state = 1

-- name: forget_lane
-- Forgets a lane that has no unfinished job. [lane.head] Primary key of ratchet_lanes.
DELETE FROM ratchet_lanes WHERE queue = ?1 AND lane = ?2
