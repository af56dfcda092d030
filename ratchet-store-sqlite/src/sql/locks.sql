-- Locks and versions.

-- name: put_lock
-- Stores a lock with its owner, fence and expiry. [lock.exclusive] [lock.fence] [lock.again] Uses
-- the primary key of ratchet_locks.
INSERT INTO ratchet_locks (name, owner, fence, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, fence = excluded.fence, expires_at = excluded.expires_at

-- name: move_expiry
-- Clamps the expiry of an unexpired tenure to the range from ?4 to ?6, as
-- ratchet_core::store::renewed_end does, or releases the lock. [lock.renew] [lock.release] Uses the
-- primary key of ratchet_locks.
UPDATE ratchet_locks SET expires_at = min(max(expires_at, ?4), ?6)
WHERE name = ?1 AND owner = ?2 AND fence = ?3 AND expires_at > ?5

-- name: find_lock
-- Returns one lock. [lock.held] [lock.expire] [lock.renew] [lock.release] Uses the primary key of
-- ratchet_locks.
SELECT owner, fence, expires_at FROM ratchet_locks WHERE name = ?1

-- name: list_locks
-- Returns one page of the locks. [lock.list] Uses the primary key of ratchet_locks.
SELECT name, owner, fence, expires_at FROM ratchet_locks WHERE name > ?1 ORDER BY name LIMIT ?2

-- name: bump_version
-- Increases the version of a namespace, and returns it. [version.bump] Uses the primary key of
-- ratchet_versions.
INSERT INTO ratchet_versions (namespace, version) VALUES (?1, ?2)
ON CONFLICT (namespace) DO UPDATE SET version = max(version + 1, excluded.version)
RETURNING version

-- name: find_version
-- Returns the version of a namespace. [version.read] Uses the primary key of ratchet_versions.
SELECT version FROM ratchet_versions WHERE namespace = ?1
