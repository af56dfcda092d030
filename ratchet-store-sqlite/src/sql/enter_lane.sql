-- Puts an unfinished job into its lane. [lane.sequence] [lane.requeue]
INSERT INTO ratchet_lane_jobs (job, queue, lane, seq) VALUES (?1, ?2, ?3, ?4)
