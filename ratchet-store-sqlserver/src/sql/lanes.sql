-- Lanes.

-- name: enter_lanes
-- Locks lanes until the transaction ends, and reserves sequence numbers in each: as many as count,
-- which may be 0. Returns the last number of each lane. Creates the row of a lane that had no
-- unfinished job. [lane.sequence] [lane.head] Primary key of lanes, locked in the order of the
-- keys. If two callers race for a lane without a row, one may fail with a duplicate key; it then
-- begins again.
DECLARE @wanted TABLE (queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                       lane nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL, count bigint NOT NULL,
                       PRIMARY KEY (queue, lane));
DECLARE @entered TABLE (queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                        lane nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
INSERT INTO @wanted (queue, lane, count)
SELECT {name given.queue}, {name given.lane}, given.count
FROM OPENJSON(@P1) WITH (queue nvarchar(256), lane nvarchar(256), count bigint) AS given;
UPDATE {schema}.lanes SET last_seq = lanes.last_seq + wanted.count
OUTPUT inserted.queue, inserted.lane INTO @entered
FROM @wanted AS wanted{seek lanes}
WHERE lanes.queue = wanted.queue AND lanes.lane = wanted.lane
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO {schema}.lanes (queue, lane, last_seq)
SELECT wanted.queue, wanted.lane, wanted.count
FROM @wanted AS wanted
WHERE NOT EXISTS (SELECT 1 FROM @entered AS entered
                  WHERE entered.queue = wanted.queue AND entered.lane = wanted.lane);
SELECT lane.queue, lane.lane, lane.last_seq
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.lanes AS lane WITH (FORCESEEK, UPDLOCK, ROWLOCK)
    ON lane.queue = wanted.queue AND lane.lane = wanted.lane

-- name: lanes_of
-- Returns the lanes of jobs that have one, finished or not. [lane.requeue] [lane.promote] Primary
-- keys. A job's row in lane_jobs takes precedence over its other rows, because it survives damage
-- to them.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id, COALESCE(member.queue, route.queue), COALESCE(member.lane, data.lane)
FROM {schema}.jobs AS job
LEFT JOIN {schema}.lane_jobs AS member ON member.job = job.id
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.routes AS route ON route.id = job.route
WHERE job.id IN (SELECT id FROM @wanted) AND job.flags & {lane} = {lane}
  AND COALESCE(member.lane, data.lane) IS NOT NULL
  AND COALESCE(member.queue, route.queue) IS NOT NULL

-- name: lock_lanes
-- Locks the lanes of unfinished jobs until the transaction ends, except lanes that another
-- transaction has locked. The caller waits for the locked lanes separately, so that a locked lane
-- does not delay the others. [lane.promote] Primary keys. Babelfish ignores hints: there, the write
-- waits for a locked row, at most as long as the caller's transaction waits for any lock.
DECLARE @member TABLE (job binary(16) NOT NULL,
                       queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                       lane nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @lane TABLE (queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                     lane nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                     PRIMARY KEY (queue, lane));
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
INSERT INTO @member (job, queue, lane)
SELECT member.job, member.queue, member.lane
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.lane_jobs AS member ON member.job = wanted.id
INNER LOOP JOIN {schema}.lanes AS lane
    WITH (FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON lane.queue = member.queue AND lane.lane >= member.lane AND lane.lane <= member.lane;
INSERT INTO @lane (queue, lane) SELECT DISTINCT queue, lane FROM @member;
UPDATE held SET last_seq = held.last_seq
FROM @lane AS lane
INNER LOOP JOIN {schema}.lanes AS held WITH (FORCESEEK, ROWLOCK)
    ON held.queue = lane.queue AND held.lane = lane.lane;
SELECT job, queue, lane FROM @member

-- name: place_in_lanes
-- Puts unfinished jobs into locked lanes. [lane.sequence] [lane.requeue]
INSERT INTO {schema}.lane_jobs (job, queue, lane, seq)
SELECT CONVERT(binary(16), given.job, 2), {name given.queue}, {name given.lane}, given.seq
FROM OPENJSON(@P1) WITH (job char(32), queue nvarchar(256), lane nvarchar(256), seq bigint) AS given

-- name: advance_lanes
-- Removes ended jobs (@P2) from locked lanes (@P1), makes the new heads claimable, and deletes
-- empty lanes. [lane.head] [lane.promote] [lane.cancel] lane_jobs_order and primary keys. Must come
-- after the statement that locked the lanes, to see all jobs that entered them.
DECLARE @head TABLE (queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                     lane nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL, job binary(16) NULL,
                     PRIMARY KEY (queue, lane));
DECLARE @freed TABLE (id binary(16) NOT NULL PRIMARY KEY);
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P2);
DELETE member
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.lane_jobs AS member WITH (FORCESEEK, ROWLOCK) ON member.job = wanted.id;
INSERT INTO @head (queue, lane, job)
SELECT wanted.queue, wanted.lane,
       (SELECT TOP (1) member.job FROM {schema}.lane_jobs AS member
        WHERE member.queue = wanted.queue AND member.lane = wanted.lane
        ORDER BY member.seq)
FROM (SELECT {name given.queue} AS queue, {name given.lane} AS lane
      FROM OPENJSON(@P1) WITH (queue nvarchar(256), lane nvarchar(256)) AS given) AS wanted;
INSERT INTO @freed (id) SELECT job FROM @head WHERE job IS NOT NULL;
UPDATE job SET state = 0
FROM @freed AS freed
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = freed.id
WHERE job.state + 0 = 1;
DELETE lane
FROM @head AS head
INNER LOOP JOIN {schema}.lanes AS lane WITH (FORCESEEK, ROWLOCK)
    ON lane.queue = head.queue AND lane.lane = head.lane
WHERE head.job IS NULL
