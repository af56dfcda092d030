-- Stores a tenure. [lock.exclusive] [lock.fence] [lock.again] Primary key of ratchet_locks.
INSERT INTO ratchet_locks (name, owner, fence, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, fence = excluded.fence, expires_at = excluded.expires_at
