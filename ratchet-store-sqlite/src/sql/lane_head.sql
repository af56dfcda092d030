-- The first unfinished job of a lane. [lane.head] [lane.promote] ratchet_lane_jobs_order.
SELECT job FROM ratchet_lane_jobs WHERE queue = ?1 AND lane = ?2 ORDER BY seq LIMIT 1
