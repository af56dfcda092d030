-- Moves the end of an unexpired tenure. [lock.renew] [lock.release] Primary key of ratchet_locks.
UPDATE ratchet_locks SET expires_at = ?4
WHERE name = ?1 AND owner = ?2 AND fence = ?3 AND expires_at > ?5
