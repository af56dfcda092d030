-- Lanes.

-- name: enter_lanes
-- Locks lanes until the transaction ends, and reserves sequence numbers in each: as many as count,
-- which may be 0. Returns the last number of each lane. Creates the row of a lane that had no
-- unfinished job. [lane.sequence] [lane.head] Primary key of lanes; the caller sends the lanes in
-- order of name, so that all calls lock in the same order.
SET @given = $1;
BEGIN;
INSERT INTO {schema}.lanes (queue, lane, last_seq)
SELECT given.queue, given.lane, given.count
FROM {rows @given (queue name, lane name, count bigint)} AS given
ON DUPLICATE KEY UPDATE last_seq = {schema}.lanes.last_seq + VALUES(last_seq);
SELECT lane.queue, lane.lane, lane.last_seq
FROM {rows @given (queue name, lane name)} AS given
STRAIGHT_JOIN {schema}.lanes AS lane FORCE INDEX (PRIMARY) ON lane.queue = given.queue AND lane.lane = given.lane
FOR UPDATE;
COMMIT

-- name: lanes_of
-- Returns the lanes of jobs that have one, finished or not. [lane.requeue] [lane.promote] Primary
-- keys. A job's row in lane_jobs takes precedence over its other rows, because it survives damage
-- to them.
SELECT job.id, COALESCE(entry.queue, route.queue), COALESCE(entry.lane, data.lane)
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
LEFT JOIN {schema}.lane_jobs AS entry FORCE INDEX (PRIMARY) ON entry.job = job.id
LEFT JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id
LEFT JOIN {schema}.routes AS route FORCE INDEX (PRIMARY) ON route.id = job.route
WHERE job.id IN ($1) AND job.flags & {lane} <> 0
  AND COALESCE(entry.lane, data.lane) IS NOT NULL
  AND COALESCE(entry.queue, route.queue) IS NOT NULL

-- name: lock_lanes
-- Locks the lanes of unfinished jobs until the transaction ends, except lanes that another
-- transaction has locked. The caller waits for the locked lanes separately, so that a locked lane
-- does not delay the others. [lane.promote] Primary keys.
SELECT entry.job, lane.queue, lane.lane
FROM {schema}.lane_jobs AS entry FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {schema}.lanes AS lane FORCE INDEX (PRIMARY) ON lane.queue = entry.queue AND lane.lane = entry.lane
WHERE entry.job IN ($1)
FOR UPDATE SKIP LOCKED

-- name: place_in_lanes
-- Puts unfinished jobs into locked lanes. [lane.sequence] [lane.requeue]
INSERT INTO {schema}.lane_jobs (job, queue, lane, seq)
SELECT UNHEX(given.job), given.queue, given.lane, given.seq
FROM {rows $1 (job id, queue name, lane name, seq bigint)} AS given

-- name: advance_lanes
-- Removes ended jobs ($2) from locked lanes ($1), makes the new heads claimable, and deletes empty
-- lanes. [lane.head] [lane.promote] [lane.cancel] lane_jobs_order and primary keys. Must come after
-- the statement that locked the lanes, to see all jobs that entered them: so the heads are read
-- with a lock, which sees them even in an older snapshot of the application's transaction.
SET @given = $1;
BEGIN;
DELETE entry FROM {schema}.lane_jobs AS entry FORCE INDEX (PRIMARY) WHERE entry.job IN ($2);
SELECT {json JSON_OBJECT('queue', head.queue, 'lane', head.lane, 'job', HEX(head.job))} INTO @heads
FROM (
    SELECT given.queue, given.lane,
           (SELECT entry.job FROM {schema}.lane_jobs AS entry FORCE INDEX (lane_jobs_order)
            WHERE entry.queue = given.queue AND entry.lane = given.lane
            ORDER BY entry.seq LIMIT 1 FOR UPDATE) AS job
    FROM {rows @given (queue name, lane name)} AS given
    LIMIT 1000000
) AS head;
UPDATE {rows @heads (job id)} AS head
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(head.job)
SET job.state = 0
WHERE job.state = 1;
DELETE lane
FROM {rows @heads (queue name, lane name, job id)} AS head
STRAIGHT_JOIN {schema}.lanes AS lane FORCE INDEX (PRIMARY)
  ON lane.queue = head.queue AND lane.lane = head.lane
WHERE head.job IS NULL;
COMMIT
