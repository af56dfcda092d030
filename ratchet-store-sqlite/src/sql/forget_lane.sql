-- Forgets a lane that has no unfinished job. [lane.head] Primary key of ratchet_lanes.
DELETE FROM ratchet_lanes WHERE queue = ?1 AND lane = ?2
