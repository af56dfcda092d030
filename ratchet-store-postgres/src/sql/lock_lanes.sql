-- Locks the lanes of unfinished jobs until the transaction ends, those aside that somebody else has:
-- the caller waits for them apart, so that a lane that is held up holds up no other.
-- [lane.promote] Primary keys: one lookup after the other, since a join planned for small tables
-- would read all of lane_jobs.
SELECT member.job, locked.queue, locked.lane
FROM unnest($1::uuid[]) AS wanted (job)
CROSS JOIN LATERAL (
    SELECT job, queue, lane FROM {schema}.lane_jobs WHERE job = wanted.job OFFSET 0
) AS member
CROSS JOIN LATERAL (
    SELECT lane.queue, lane.lane FROM {schema}.lanes AS lane
    WHERE lane.queue = member.queue AND lane.lane = member.lane
    FOR UPDATE SKIP LOCKED
) AS locked
