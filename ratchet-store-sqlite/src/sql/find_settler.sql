-- The node of an ended claim. [settle.repeat] Primary key of ratchet_attempts.
SELECT node FROM ratchet_attempts WHERE job = ?1 AND seq = ?2
