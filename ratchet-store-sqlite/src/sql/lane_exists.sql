-- Whether a lane has unfinished jobs. [lane.head] Primary key of ratchet_lanes.
SELECT EXISTS (SELECT 1 FROM ratchet_lanes WHERE queue = ?1 AND lane = ?2)
