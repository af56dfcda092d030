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
