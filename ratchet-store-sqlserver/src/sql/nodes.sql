-- Nodes.

-- name: beat_node
-- Records a heartbeat of a known node; returns no row if the node is unknown. Each row has a claim
-- of the node, or NULLs if it has no claims. [node.heartbeat] [node.reply] [node.previous]
-- [node.claims] [node.cancel] [node.alone] [cancel.running] @P14 to @P18 are the results of
-- NodeStatus::after_heartbeat for each stored status. Primary key (no index has the changed
-- columns); another live node; the rows of this node in jobs_running. If readers wait for writers in
-- this database, skips a claim that another call is writing; the next heartbeat returns it.
DECLARE @now bigint = {now};
DECLARE @previous bigint = (SELECT last_seen FROM {schema}.nodes
                           WHERE node = CONVERT(binary(16), @P1));
UPDATE {schema}.nodes
SET label = @P2,
    status = CASE status WHEN 0 THEN @P14 WHEN 1 THEN @P15 WHEN 2 THEN @P16 WHEN 3 THEN @P17
             ELSE @P18 END,
    running = @P3, capacity = @P4, interval = @P5, last_seen = @now, connections = @P6,
    cpu_percent = @P7, memory_bytes = @P8, roles = @P9, capabilities = @P10,
    kinds = CASE WHEN @P12 = 1 THEN @P11 END, totals = NULLIF(@P13, N'')
WHERE node = CONVERT(binary(16), @P1);
SELECT @now, beat.status, job.id, job.claim_seq, job.cancel_requested,
       CONVERT(bit, CASE WHEN EXISTS (SELECT * FROM {schema}.nodes
                                      WHERE node <> CONVERT(binary(16), @P1) AND status < 3)
                         THEN 0 ELSE 1 END) AS alone,
       @previous, job.claimed_at
FROM {schema}.nodes AS beat
LEFT JOIN {schema}.jobs AS job WITH (ROWLOCK{passing})
    ON job.state = 3 AND job.node = CONVERT(binary(16), @P1)
WHERE beat.node = CONVERT(binary(16), @P1)
ORDER BY job.id

-- name: put_node
-- Records the first heartbeat of a node. If it joins, live nodes with its label become dead, or
-- left if they were draining, because the new node replaces them. Runs one at a time, so that of
-- two new nodes with the same label the later sees the earlier. Must run in a transaction.
-- [node.heartbeat] [node.label] Reads the small table.
DECLARE @now bigint = {now};
DECLARE @got int, @node binary(16) = CONVERT(binary(16), @P1);
EXEC @got = sp_getapplock @Resource = {joins}, @LockMode = 'Exclusive',
                          @LockOwner = 'Transaction', @LockTimeout = {lock_timeout};
IF @got < 0 THROW 50001, N'other nodes that join take too long', 1;
IF NOT EXISTS (SELECT 1 FROM {schema}.nodes WHERE node = @node)
BEGIN
    IF @P14 = 0
        UPDATE {schema}.nodes SET status = CASE status WHEN 2 THEN 3 ELSE 4 END
        WHERE label = @P2 AND status < 3;
    INSERT INTO {schema}.nodes (node, label, status, running, capacity, interval, started_at,
                                last_seen, connections, cpu_percent, memory_bytes, roles,
                                capabilities, kinds, totals)
    VALUES (@node, @P2, @P14, @P3, @P4, @P5, @now, @now, @P6, @P7, @P8, @P9, @P10,
            CASE WHEN @P12 = 1 THEN @P11 END, NULLIF(@P13, N''));
END

-- name: nodes
-- Returns every node, newest first. [node.list] [node.silent] Reads the whole, small table.
SELECT node, label, status, running, capacity, interval, started_at, last_seen,
       connections, cpu_percent, memory_bytes, roles, capabilities, {now},
       kinds, totals
FROM {schema}.nodes
ORDER BY started_at DESC, node

-- name: set_node_status
-- Sets the status of a live node, unless it has that status. [node.status] Primary key.
UPDATE {schema}.nodes SET status = @P2
WHERE node = CONVERT(binary(16), @P1) AND status < 3 AND status <> @P2

-- name: bury_nodes
-- Marks nodes as dead, or as left if they were draining, that have sent no heartbeat since they
-- were found silent. [node.silent]
DECLARE @silent TABLE (node binary(16) NOT NULL PRIMARY KEY, last_seen bigint NOT NULL);
DECLARE @buried TABLE (node binary(16) NOT NULL);
INSERT INTO @silent (node, last_seen)
SELECT CONVERT(binary(16), given.node, 2), given.last_seen
FROM OPENJSON(@P1) WITH (node char(32), last_seen bigint) AS given;
UPDATE {schema}.nodes SET status = CASE nodes.status WHEN 2 THEN 3 ELSE 4 END
OUTPUT inserted.node INTO @buried
FROM @silent AS silent{seek nodes}
WHERE nodes.node = silent.node
  AND nodes.last_seen = silent.last_seen AND nodes.status < 3
OPTION (FORCE ORDER, LOOP JOIN);
SELECT node FROM @buried

-- name: forget_nodes
-- Deletes ended nodes that own no claim. [node.forget] Primary key; jobs_running.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
DELETE ended
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.nodes AS ended WITH (FORCESEEK, ROWLOCK) ON ended.node = wanted.id
WHERE ended.status >= 3
  AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS job WHERE job.state = 3 AND job.node = ended.node)

-- name: now
-- Returns the database's time in milliseconds. [time.clock] [time.precision] [time.read]
SELECT {now}
