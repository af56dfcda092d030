-- Deletes an ended node. [node.forget] Primary key.
DELETE FROM ratchet_nodes WHERE node = ?1
