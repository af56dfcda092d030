-- Locks the lanes of unfinished jobs until the transaction ends, those aside that somebody else has:
-- the caller waits for them apart, so that a lane that is held up holds up no other.
-- [lane.promote] Primary keys.
SELECT member.job, lane.queue, lane.lane
FROM {schema}.lane_jobs AS member
JOIN {schema}.lanes AS lane ON lane.queue = member.queue AND lane.lane = member.lane
WHERE member.job = ANY($1::uuid[])
FOR UPDATE OF lane SKIP LOCKED
