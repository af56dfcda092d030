-- Nodes.

-- name: beat_node
-- Records a heartbeat of a known node; returns no row if the node is unknown. Each row has a claim
-- of the node, or NULLs if it has no claims. [node.heartbeat] [node.reply] [node.previous]
-- [node.claims] [node.cancel] [node.alone] [cancel.running] $14 to $18 are the results of
-- NodeStatus::after_heartbeat for each stored status. $12 is whether the node reports the kinds
-- that it runs ($11). An empty $13 means no notes. Primary key (no index has the changed columns);
-- another live node, in the order of the random ids: after a deploy, the oldest rows are those of
-- ended nodes; the rows of this node in jobs_state.
SET @now = {now}, @before = NULL;
BEGIN;
SELECT last_seen INTO @before FROM {schema}.nodes WHERE node = $1 FOR UPDATE;
UPDATE {schema}.nodes
SET label = $2,
    status = CASE status WHEN 0 THEN $14 WHEN 1 THEN $15 WHEN 2 THEN $16 WHEN 3 THEN $17
             ELSE $18 END,
    running = $3, capacity = $4, `interval` = $5, last_seen = @now, connections = $6,
    cpu_percent = $7, memory_bytes = $8, roles = $9, capabilities = $10,
    kinds = CASE WHEN $12 THEN $11 END, totals = NULLIF($13, '')
WHERE node = $1;
SELECT @now, beat.status, job.id, job.claim_seq, job.cancel_requested,
       NOT EXISTS (SELECT 1 FROM {schema}.nodes AS other FORCE INDEX (PRIMARY)
                   WHERE other.node <> $1 AND other.status < 3) AS alone,
       @before, job.claimed_at
FROM {schema}.nodes AS beat
LEFT JOIN {schema}.jobs AS job FORCE INDEX (jobs_state)
  ON job.state = 3 AND job.finished_at IS NULL AND job.holder = $1
WHERE beat.node = $1
ORDER BY job.id;
COMMIT

-- name: put_node
-- Records the first heartbeat of a node. If it joins, live nodes with its label become dead, or
-- left if they were draining, because the new node replaces them. [node.heartbeat] [node.label]
-- Reads the small table.
SET @now = {now};
BEGIN;
SET @known = EXISTS (SELECT 1 FROM {schema}.nodes WHERE node = $1);
UPDATE {schema}.nodes SET status = CASE status WHEN 2 THEN 3 ELSE 4 END
WHERE $14 = 0 AND label = $2 AND status < 3 AND NOT @known;
INSERT IGNORE INTO {schema}.nodes (node, label, status, running, capacity, `interval`, started_at,
                                   last_seen, connections, cpu_percent, memory_bytes, roles,
                                   capabilities, kinds, totals)
SELECT $1, $2, $14, $3, $4, $5, @now, @now, $6, $7, $8, $9, $10, CASE WHEN $12 THEN $11 END,
       NULLIF($13, '');
COMMIT

-- name: nodes
-- Returns every node, newest first. [node.list] [node.silent]
-- Reads the whole, small table.
SELECT node, label, status, running, capacity, `interval`, started_at, last_seen,
       connections, cpu_percent, memory_bytes, roles, capabilities, {now},
       kinds, totals
FROM {schema}.nodes
ORDER BY started_at DESC, node

-- name: set_node_status
-- Sets the status of a live node, unless it has that status. [node.status] Primary key.
UPDATE {schema}.nodes SET status = $2 WHERE node = $1 AND status < 3 AND status <> $2

-- name: bury_nodes
-- Marks nodes as dead, or as left if they were draining, that have sent no heartbeat since they
-- were found silent. [node.silent]
SET @given = $1;
BEGIN;
SELECT {hex buried.node} INTO @buried
FROM (
    SELECT silent.node
    FROM {rows @given (node id, last_seen bigint)} AS given
    STRAIGHT_JOIN {schema}.nodes AS silent FORCE INDEX (PRIMARY) ON silent.node = UNHEX(given.node)
    WHERE silent.last_seen = given.last_seen AND silent.status < 3
    FOR UPDATE
) AS buried;
UPDATE {list @buried} AS buried
STRAIGHT_JOIN {schema}.nodes AS silent FORCE INDEX (PRIMARY) ON silent.node = UNHEX(buried.id)
SET silent.status = CASE silent.status WHEN 2 THEN 3 ELSE 4 END;
SELECT UNHEX(buried.id) FROM {list @buried} AS buried;
COMMIT

-- name: forget_nodes
-- Deletes ended nodes that own no claim. A node that has ended claims no more. [node.forget]
-- Primary key; jobs_state, read in a separate query, because a DELETE would lock what it reads.
BEGIN;
SELECT {hex ended.node} INTO @ended
FROM {schema}.nodes AS ended FORCE INDEX (PRIMARY)
WHERE ended.node IN ($1) AND ended.status >= 3
  AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
                  WHERE job.state = 3 AND job.finished_at IS NULL AND job.holder = ended.node);
DELETE gone FROM {list @ended} AS ended
STRAIGHT_JOIN {schema}.nodes AS gone FORCE INDEX (PRIMARY) ON gone.node = UNHEX(ended.id)
WHERE gone.status >= 3;
COMMIT

-- name: now
-- Returns the database's time in milliseconds. [time.clock] [time.precision] [time.read]
SELECT {now}

-- name: await_label
-- Waits until other nodes that join have joined, so that of two new nodes with the same label ($1)
-- the later sees the earlier. Known nodes send heartbeats meanwhile. [node.label] The second gate,
-- for all labels, because a row for each label would have to be deleted again.
SELECT id FROM {schema}.gates WHERE id = 2 AND $1 IS NOT NULL FOR UPDATE
