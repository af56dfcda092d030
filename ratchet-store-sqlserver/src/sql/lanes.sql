-- Lanes.

-- name: enter_lanes
-- Locks lanes until the transaction ends and takes this many sequences of each (count; 0: only the
-- lock), the last of which comes back. A lane that has no unfinished job has no row until now.
-- [lane.sequence] [lane.head] Primary key of lanes. Two callers that meet at a lane without a row may
-- leave one with an error (duplicate key): it begins again. The order of the locks is that of the keys.
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
-- The lanes of jobs that have one, whether they are unfinished or not. [lane.requeue] [lane.promote]
-- Primary keys. What a job's place in its lane says counts more: it outlives damage to the job.
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
-- Locks the lanes of unfinished jobs until the transaction ends, except those that another transaction has:
-- the caller waits for them apart, so that a lane that is held up holds up no other.
-- [lane.promote] Primary keys. Where hints do nothing, the row is waited for when it is written: for
-- no longer than the caller's transaction waits for anything.
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
-- Puts unfinished jobs into lanes that are locked. [lane.sequence] [lane.requeue]
INSERT INTO {schema}.lane_jobs (job, queue, lane, seq)
SELECT CONVERT(binary(16), given.job, 2), {name given.queue}, {name given.lane}, given.seq
FROM OPENJSON(@P1) WITH (job char(32), queue nvarchar(256), lane nvarchar(256), seq bigint) AS given

-- name: advance_lanes
-- Takes jobs that ended (@P2) out of lanes that are locked (@P1), lets those be claimed that are the
-- heads then, and forgets the lanes that are empty. [lane.head] [lane.promote] [lane.cancel]
-- lane_jobs_order and primary keys. In a statement after the one that locked the lanes, so that it
-- sees all who entered them.
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
