-- Locks and versions.

-- name: acquire_lock
-- Acquires a free lock, or acquires it again for its owner; otherwise returns its holder.
-- ratchet_core::store::renewed_end defines the new expiry. [lock.exclusive] [lock.held]
-- [lock.expire] [lock.again] [lock.fence] Primary key of locks. The first write locks the row, or
-- creates one that no owner holds and that no other transaction can see. Its lock is exclusive, so
-- two callers cannot deadlock. The server evaluates the assignments of the update in their order,
-- so the owner comes last.
BEGIN;
INSERT INTO {schema}.locks (name, owner, fence, expires_at) VALUES ($1, '', 0, 0)
ON DUPLICATE KEY UPDATE fence = fence;
SET @now = {now};
UPDATE {schema}.locks
SET fence = CASE WHEN owner = $2 AND expires_at > @now THEN fence ELSE GREATEST(fence + 1, @now) END,
    expires_at = CASE WHEN owner = $2
                      THEN LEAST(GREATEST(expires_at, @now + $3), @now + 2 * $3)
                      ELSE @now + $3 END,
    owner = $2
WHERE name = $1 AND (owner = $2 OR expires_at <= @now);
SET @taken = ROW_COUNT();
SELECT fence, CASE WHEN NOT @taken THEN owner END, CASE WHEN NOT @taken THEN expires_at - @now END
FROM {schema}.locks WHERE name = $1;
COMMIT

-- name: move_expiry
-- Renews an unexpired tenure for the TTL $4, or releases the lock if $4 is NULL.
-- ratchet_core::store::renewed_end defines the new expiry. [lock.renew] [lock.release] Primary key
-- of locks.
UPDATE {schema}.locks
SET expires_at = CASE WHEN $4 IS NULL THEN 0
                      ELSE LEAST(GREATEST(expires_at, {now} + $4), {now} + 2 * $4) END
WHERE name = $1 AND owner = $2 AND fence = $3 AND expires_at > {now}

-- name: find_lock
-- Returns one lock. Locks do not end with a session. [lock.inspect] Primary key of locks.
SELECT owner, fence, expires_at, {now}, FALSE FROM {schema}.locks WHERE name = $1

-- name: list_locks
-- Returns one page of the locks. [lock.list] Primary key of locks.
SELECT owner, fence, expires_at, {now}, FALSE, name
FROM {schema}.locks
WHERE name > $1
ORDER BY name
LIMIT $2

-- name: is_tenure
-- Returns a row if this tenure still lasts. No other owner can then acquire the lock before the
-- transaction ends. [guard.write] Primary key of locks.
SELECT 1 FROM {schema}.locks
WHERE name = $1 AND owner = $2 AND fence = $3 AND expires_at > {now}
LOCK IN SHARE MODE

-- name: bump_version
-- Increases the version of a namespace, and returns it. [version.bump] Primary key of versions.
SET @now = {now};
BEGIN;
INSERT INTO {schema}.versions (namespace, version) VALUES ($1, @now)
ON DUPLICATE KEY UPDATE version = GREATEST(version + 1, @now);
SELECT version FROM {schema}.versions WHERE namespace = $1;
COMMIT

-- name: find_versions
-- Returns the versions of the namespaces that have one. [version.read] Primary key of versions.
SELECT namespace, version FROM {schema}.versions FORCE INDEX (PRIMARY) WHERE namespace IN ($1)
