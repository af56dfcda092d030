-- Locks the lanes of unfinished jobs until the transaction ends, those aside that somebody else has:
-- the caller waits for them apart, so that a lane that is held up holds up no other.
-- [lane.promote] Primary keys. Where hints do nothing, the row is waited for when it is written: for
-- no longer than the caller's transaction waits for anything.
DECLARE @member TABLE (job binary(16) NOT NULL,
                       queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                       lane nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
INSERT INTO @member (job, queue, lane)
SELECT member.job, member.queue, member.lane
FROM {schema}.lane_jobs AS member
JOIN {schema}.lanes AS lane WITH (UPDLOCK, READPAST, ROWLOCK)
    ON lane.queue = member.queue AND lane.lane >= member.lane AND lane.lane <= member.lane
WHERE member.job IN (SELECT id FROM @wanted);
UPDATE {schema}.lanes SET last_seq = lanes.last_seq
FROM (SELECT DISTINCT queue, lane FROM @member) AS member
WHERE lanes.queue = member.queue AND lanes.lane = member.lane;
SELECT job, queue, lane FROM @member
