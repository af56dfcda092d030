-- Nodes.

-- name: find_node
-- Returns one node. [node.heartbeat] Uses the primary key of ratchet_nodes.
SELECT node, label, status, running, capacity, interval, started_at, last_seen,
       connections, cpu_percent, memory_bytes, roles, capabilities, kinds, totals
FROM ratchet_nodes
WHERE node = ?1

-- name: put_node
-- Stores the new state of a node after its heartbeat. [node.heartbeat] Uses the primary key; no
-- index contains the changed columns.
INSERT INTO ratchet_nodes (node, label, status, running, capacity, interval, started_at, last_seen,
                           connections, cpu_percent, memory_bytes, roles, capabilities, kinds,
                           totals)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
ON CONFLICT (node) DO UPDATE
SET label = excluded.label, status = excluded.status, running = excluded.running,
    capacity = excluded.capacity, interval = excluded.interval, last_seen = excluded.last_seen,
    connections = excluded.connections, cpu_percent = excluded.cpu_percent,
    memory_bytes = excluded.memory_bytes, roles = excluded.roles,
    capabilities = excluded.capabilities, kinds = excluded.kinds, totals = excluded.totals

-- name: nodes
-- Returns every node, newest first. [node.list] [node.silent] [reclaim.dead] Reads the whole table,
-- which is small.
SELECT node, label, status, running, capacity, interval, started_at, last_seen,
       connections, cpu_percent, memory_bytes, roles, capabilities, kinds, totals
FROM ratchet_nodes
ORDER BY started_at DESC, node

-- name: set_node_status
-- Sets the status of a live node, unless it has that status. [node.status] Uses the primary key.
UPDATE ratchet_nodes SET status = ?2 WHERE node = ?1 AND status < 3 AND status <> ?2

-- name: displace_label
-- Ends the live nodes with the label of a new node: they become dead, or left if they were
-- draining. [node.label] Reads the whole table, which is small.
UPDATE ratchet_nodes SET status = CASE status WHEN 2 THEN 3 ELSE 4 END
WHERE label = ?1 AND status < 3

-- name: node_claims
-- Returns the claims of a node. [node.claims] [node.cancel] [cancel.running] Uses
-- ratchet_jobs_running, and reads only the entries of this node.
SELECT id, claim_seq, cancel_requested, coalesce(claimed_at, 0)
FROM ratchet_jobs INDEXED BY ratchet_jobs_running
WHERE state = 3 AND node = ?1
ORDER BY id

-- name: is_alone
-- Returns whether no other node is live. [node.alone] Reads the table, which is small, up to
-- another live node.
SELECT NOT EXISTS (SELECT * FROM ratchet_nodes WHERE node <> ?1 AND status < 3)

-- name: claim_owners
-- Returns the nodes that own claims. [node.forget] Uses ratchet_jobs_running, and reads one entry
-- per claim.
SELECT DISTINCT node
FROM ratchet_jobs INDEXED BY ratchet_jobs_running
WHERE state = 3 AND node IS NOT NULL

-- name: forget_node
-- Deletes an ended node. [node.forget] Uses the primary key.
DELETE FROM ratchet_nodes WHERE node = ?1

-- name: now
-- Returns the database's time in milliseconds. [time.clock] [time.precision] unixepoch('subsec')
-- returns seconds as a float. The result is rounded, so that no float error loses a millisecond.
SELECT CAST(round(unixepoch('subsec') * 1000.0) AS INTEGER)
