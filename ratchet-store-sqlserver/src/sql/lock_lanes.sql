-- Locks the lanes of unfinished jobs until the transaction ends, those aside that somebody else has:
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
