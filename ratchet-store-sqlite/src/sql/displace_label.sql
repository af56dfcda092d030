-- Makes the live nodes with the label of a new one dead. [node.label] Reads the small table.
UPDATE ratchet_nodes SET status = 4 WHERE label = ?1 AND status < 3
