-- Locks lanes until the transaction ends and takes so many sequences of each (count; 0: only the
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
