-- Brings the end of an unexpired tenure into the range from ?4 to ?6, as
-- ratchet_core::store::renewed_end does, or frees the lock. [lock.renew] [lock.release]
-- Primary key of ratchet_locks.
UPDATE ratchet_locks SET expires_at = min(max(expires_at, ?4), ?6)
WHERE name = ?1 AND owner = ?2 AND fence = ?3 AND expires_at > ?5
