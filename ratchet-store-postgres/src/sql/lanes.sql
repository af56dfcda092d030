-- Lanes.

-- name: enter_lanes
-- Locks lanes until the transaction ends, and reserves sequence numbers in each: as many as $3,
-- which may be 0. Returns the last number of each lane. Creates the row of a lane that had no
-- unfinished job. [lane.sequence] [lane.head] Primary key of lanes; the caller sends the lanes in
-- order of name, so that all calls lock in the same order.
INSERT INTO {schema}.lanes AS lane (queue, lane, last_seq)
SELECT wanted.queue, wanted.lane, wanted.count
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY
    AS wanted (queue, lane, count, place)
ORDER BY wanted.place
ON CONFLICT (queue, lane) DO UPDATE SET last_seq = lane.last_seq + excluded.last_seq
RETURNING lane.queue, lane.lane, lane.last_seq

-- name: lanes_of
-- Returns the lanes of jobs that have one, finished or not. [lane.requeue] [lane.promote] Primary
-- keys. A job's row in lane_jobs takes precedence over its other rows, because it survives damage
-- to them.
SELECT job.id, coalesce(member.queue, job.queue, route.queue), coalesce(member.lane, data.lane)
FROM {schema}.jobs AS job
LEFT JOIN {schema}.lane_jobs AS member ON member.job = job.id
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.routes AS route ON route.id = job.route
WHERE job.id = ANY($1::uuid[]) AND job.flags & {lane} = {lane}
  AND coalesce(member.lane, data.lane) IS NOT NULL
  AND coalesce(member.queue, route.queue) IS NOT NULL

-- name: lock_lanes
-- Locks the lanes of unfinished jobs until the transaction ends, except lanes that another
-- transaction has locked. The caller waits for the locked lanes separately, so that a locked lane
-- does not delay the others. [lane.promote] Primary keys: one lookup after the other, because a
-- join planned for small tables would read all of lane_jobs.
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

-- name: place_in_lanes
-- Puts unfinished jobs into locked lanes. [lane.sequence] [lane.requeue]
INSERT INTO {schema}.lane_jobs (job, queue, lane, seq)
SELECT job, queue, lane, seq
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) AS place (job, queue, lane, seq)

-- name: advance_lanes
-- Removes ended jobs ($3) from locked lanes, makes the new heads claimable, and deletes empty
-- lanes. [lane.head] [lane.promote] [lane.cancel]
-- lane_jobs_order and primary keys. Must come after the statement that locked the lanes, to see all
-- jobs that entered them.
WITH gone AS (
    DELETE FROM {schema}.lane_jobs WHERE job = ANY($3::uuid[])
),
head AS MATERIALIZED (
    SELECT wanted.queue, wanted.lane,
           (SELECT member.job FROM {schema}.lane_jobs AS member
            WHERE member.queue = wanted.queue AND member.lane = wanted.lane
              AND member.job <> ALL($3::uuid[])
            ORDER BY member.seq
            LIMIT 1) AS job
    FROM unnest($1::text[], $2::text[]) AS wanted (queue, lane)
),
promoted AS (
    UPDATE {schema}.jobs AS job SET state = 0
    FROM head
    WHERE job.id = head.job AND job.state + 0 = 1
)
DELETE FROM {schema}.lanes AS lane
USING head
WHERE head.job IS NULL AND lane.queue = head.queue AND lane.lane = head.lane
