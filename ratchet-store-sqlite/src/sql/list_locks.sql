-- One page of the locks. [lock.list] Primary key of ratchet_locks.
SELECT name, owner, fence, expires_at FROM ratchet_locks WHERE name > ?1 ORDER BY name LIMIT ?2
