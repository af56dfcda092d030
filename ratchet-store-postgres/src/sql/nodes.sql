-- Nodes.

-- name: beat_node
-- Records a heartbeat of a known node; returns no row if the node is unknown. Each row has a claim
-- of the node, or NULLs if it has no claims. [node.heartbeat] [node.reply] [node.previous]
-- [node.claims] [node.cancel] [node.alone] [cancel.running] $14 to $18 are the results of
-- NodeStatus::after_heartbeat for each stored status. $12 is whether the node reports the kinds
-- that it runs ($11). An empty $13 means no notes. Primary key (no index has the changed columns);
-- another live node, in the order of the random ids: after a deploy, the oldest rows are those of
-- ended nodes; the rows of this node in jobs_running.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
beat AS (
    UPDATE {schema}.nodes AS node
    SET label = $2,
        status = CASE node.status WHEN 0 THEN $14::smallint WHEN 1 THEN $15::smallint
                                  WHEN 2 THEN $16::smallint WHEN 3 THEN $17::smallint
                                  ELSE $18::smallint END, running = $3, capacity = $4,
        interval = $5, last_seen = clock.now, connections = $6, cpu_percent = $7,
        memory_bytes = $8, roles = $9, capabilities = $10,
        kinds = CASE WHEN $12 THEN $11 END, totals = nullif($13, '')
    FROM clock
    CROSS JOIN (SELECT last_seen FROM {schema}.nodes WHERE node = $1) AS before
    WHERE node.node = $1
    RETURNING node.status, clock.now, before.last_seen
)
SELECT beat.now, beat.status, job.id, job.claim_seq, job.cancel_requested,
       (SELECT node FROM {schema}.nodes WHERE node <> $1 AND status < 3
        ORDER BY node LIMIT 1) IS NULL AS alone,
       beat.last_seen, job.claimed_at
FROM beat
LEFT JOIN {schema}.jobs AS job ON job.state = 3 AND job.node = $1
ORDER BY job.id

-- name: put_node
-- Records the first heartbeat of a node. If it joins, live nodes with its label become dead, or
-- left if they were draining, because the new node replaces them. [node.heartbeat] [node.label]
-- Reads the small table.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
displaced AS (
    UPDATE {schema}.nodes SET status = CASE status WHEN 2 THEN 3 ELSE 4 END
    WHERE $14 = 0 AND label = $2 AND status < 3
      AND NOT EXISTS (SELECT FROM {schema}.nodes AS known WHERE known.node = $1)
)
INSERT INTO {schema}.nodes (node, label, status, running, capacity, interval, started_at, last_seen,
                            connections, cpu_percent, memory_bytes, roles, capabilities,
                            kinds, totals)
SELECT $1, $2, $14, $3, $4, $5, now, now, $6, $7, $8, $9, $10, CASE WHEN $12 THEN $11 END,
       nullif($13, '')
FROM clock
ON CONFLICT (node) DO NOTHING

-- name: nodes
-- Returns every node, newest first. [node.list] [node.silent]
-- Reads the whole, small table.
SELECT node, label, status, running, capacity, interval, started_at, last_seen,
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
UPDATE {schema}.nodes AS node SET status = CASE node.status WHEN 2 THEN 3 ELSE 4 END
FROM unnest($1::uuid[], $2::bigint[]) AS silent (node, last_seen)
WHERE node.node = silent.node AND node.last_seen = silent.last_seen AND node.status < 3
RETURNING node.node

-- name: forget_nodes
-- Deletes ended nodes that own no claim. [node.forget] Primary key; jobs_running.
DELETE FROM {schema}.nodes AS node
WHERE node.node = ANY($1::uuid[]) AND node.status >= 3
  AND NOT EXISTS (SELECT FROM {schema}.jobs AS job WHERE job.state = 3 AND job.node = node.node)

-- name: now
-- Returns the database's time in milliseconds. [time.clock] [time.precision] [time.read]
SELECT {now}

-- name: await_label
-- Waits until other nodes that join under this label have joined, so that of two new nodes with the
-- same label the later sees the earlier. Other nodes join and send heartbeats meanwhile.
-- [node.label] A lock of the transaction; one row of migrations, which gives it a number of this
-- schema.
SELECT pg_advisory_xact_lock(tableoid::int, hashtext($1)) FROM {schema}.migrations LIMIT 1
