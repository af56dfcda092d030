-- Takes a job that ends out of its lane. [lane.promote] [lane.cancel]
-- Primary key of ratchet_lane_jobs.
DELETE FROM ratchet_lane_jobs WHERE job = ?1 RETURNING queue, lane
