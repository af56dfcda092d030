-- Counts children that ended. [batch.count] Primary key of ratchet_batches.
UPDATE ratchet_batches
SET succeeded = succeeded + ?2, failed = failed + ?3, cancelled = cancelled + ?4
WHERE id = ?1
