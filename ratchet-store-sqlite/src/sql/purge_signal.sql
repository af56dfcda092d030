-- Deletes the signal of a purged job. [purge.old] Primary key.
DELETE FROM ratchet_signals WHERE job = ?1
