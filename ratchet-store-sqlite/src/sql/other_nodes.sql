-- How many other nodes are live, and when the newest of them began. [node.others]
-- Reads the small table.
SELECT count(*), max(started_at) FROM ratchet_nodes WHERE node <> ?1 AND status < 3
