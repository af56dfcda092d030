-- Lanes.

-- name: lane_exists
-- Returns whether a lane has unfinished jobs. [lane.head] Uses the primary key of ratchet_lanes.
SELECT EXISTS (SELECT 1 FROM ratchet_lanes WHERE queue = ?1 AND lane = ?2)

-- name: next_in_lane
-- Advances the last sequence number of a lane, and returns it. [lane.sequence] Uses the primary key
-- of ratchet_lanes.
INSERT INTO ratchet_lanes (queue, lane, last_seq) VALUES (?1, ?2, 1)
ON CONFLICT (queue, lane) DO UPDATE SET last_seq = last_seq + 1
RETURNING last_seq

-- name: enter_lane
-- Puts an unfinished job into its lane. [lane.sequence] [lane.requeue]
INSERT INTO ratchet_lane_jobs (job, queue, lane, seq) VALUES (?1, ?2, ?3, ?4)

-- name: lane_of
-- Returns the queue and the lane with which a job was enqueued. [lane.requeue] Uses primary keys.
SELECT coalesce(job.queue, route.queue), data.lane
FROM ratchet_jobs AS job
JOIN ratchet_routes AS route ON route.id = job.route
JOIN ratchet_job_data AS data ON data.id = job.data
WHERE job.id = ?1 AND data.lane IS NOT NULL

-- name: lane_head
-- Returns the first unfinished job of a lane. [lane.head] [lane.promote] Uses
-- ratchet_lane_jobs_order.
SELECT job FROM ratchet_lane_jobs WHERE queue = ?1 AND lane = ?2 ORDER BY seq LIMIT 1

-- name: leave_lane
-- Removes an ended job from its lane. [lane.promote] [lane.cancel] Uses the primary key of
-- ratchet_lane_jobs.
DELETE FROM ratchet_lane_jobs WHERE job = ?1 RETURNING queue, lane

-- name: promote_job
-- Makes the new head of a lane claimable, if it is blocked. [lane.promote] Uses the primary key of
-- ratchet_jobs.
UPDATE ratchet_jobs SET state = 0 WHERE id = ?1 AND state = 1

-- name: forget_lane
-- Deletes a lane that has no unfinished job. [lane.head] Uses the primary key of ratchet_lanes.
DELETE FROM ratchet_lanes WHERE queue = ?1 AND lane = ?2
