-- The node and the time of an ended claim. [settle.repeat] Primary key of ratchet_attempts.
SELECT node, claimed_at FROM ratchet_attempts WHERE job = ?1 AND seq = ?2
