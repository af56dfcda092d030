-- One lock. [lock.held] [lock.expire] [lock.renew] [lock.release] Primary key of ratchet_locks.
SELECT owner, fence, expires_at FROM ratchet_locks WHERE name = ?1
