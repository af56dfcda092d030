-- The next sequence of a lane. [lane.sequence] Primary key of ratchet_lanes.
INSERT INTO ratchet_lanes (queue, lane, last_seq) VALUES (?1, ?2, 1)
ON CONFLICT (queue, lane) DO UPDATE SET last_seq = last_seq + 1
RETURNING last_seq
