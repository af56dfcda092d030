-- Counts a new child of an open batch. [batch.join] Primary key of ratchet_batches.
UPDATE ratchet_batches SET total = total + 1 WHERE id = ?1 AND closed = 0
