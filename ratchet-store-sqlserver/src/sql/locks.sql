-- Locks and versions.

-- name: acquire_lock
-- Acquires a free lock, or acquires it again for its owner; otherwise returns its holder. If two
-- callers race for a lock that was never held, one may fail with a duplicate key, and then tries
-- again. ratchet_core::store::renewed_end defines the new expiry. [lock.exclusive] [lock.held]
-- [lock.expire] [lock.again] [lock.fence] Primary key of locks.
DECLARE @now bigint = {now};
DECLARE @taken TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
BEGIN TRANSACTION;
UPDATE {schema}.locks
SET fence = CASE WHEN owner = @P2 AND expires_at > @now THEN fence
                 WHEN fence >= @now THEN fence + 1 ELSE @now END,
    owner = @P2,
    expires_at = CASE WHEN owner <> @P2 OR expires_at < @now + @P3 THEN @now + @P3
                      WHEN expires_at > @now + 2 * @P3 THEN @now + 2 * @P3 ELSE expires_at END
OUTPUT inserted.name INTO @taken
WHERE name = @P1 AND (owner = @P2 OR expires_at <= @now);
IF NOT EXISTS (SELECT 1 FROM @taken)
    INSERT INTO {schema}.locks (name, owner, fence, expires_at)
    OUTPUT inserted.name INTO @taken
    SELECT @P1, @P2, @now, @now + @P3
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.locks WHERE name = @P1);
SELECT fence, CASE WHEN taken.name IS NULL THEN owner END, expires_at - @now
FROM {schema}.locks AS known
LEFT JOIN @taken AS taken ON taken.name = known.name
WHERE known.name = @P1 AND (taken.name IS NOT NULL OR (owner <> @P2 AND expires_at > @now));
COMMIT TRANSACTION

-- name: move_expiry
-- Renews an unexpired tenure for the TTL @P4, or releases the lock if @P4 is NULL.
-- ratchet_core::store::renewed_end defines the new expiry. [lock.renew] [lock.release] Primary key
-- of locks.
DECLARE @now bigint = {now};
UPDATE {schema}.locks
SET expires_at = CASE WHEN @P4 IS NULL THEN 0
                      WHEN expires_at < @now + @P4 THEN @now + @P4
                      WHEN expires_at > @now + 2 * @P4 THEN @now + 2 * @P4 ELSE expires_at END
WHERE name = @P1 AND owner = @P2 AND fence = @P3 AND expires_at > @now

-- name: find_lock
-- Returns one lock. The last column is always 0 (the holder's session has not ended), because locks
-- are never bound to sessions here. [lock.inspect] Primary key of locks.
SELECT owner, fence, expires_at, {now}, CAST(0 AS bit) FROM {schema}.locks WHERE name = @P1

-- name: list_locks
-- Returns one page of the locks. [lock.list] Primary key of locks.
DECLARE @now bigint = {now};
SELECT TOP (@P2) owner, fence, expires_at, @now, CAST(0 AS bit), name
FROM {schema}.locks
WHERE name > @P1
ORDER BY name

-- name: is_tenure
-- Returns a row if this tenure still lasts. No other owner can then acquire the lock before the
-- transaction ends. [guard.write] Primary key of locks. The row is written unchanged, which locks
-- it on every server.
DECLARE @now bigint = {now};
UPDATE {schema}.locks SET fence = fence
WHERE name = @P1 AND owner = @P2 AND fence = @P3 AND expires_at > @now;
SELECT fence FROM {schema}.locks WITH (UPDLOCK, ROWLOCK)
WHERE name = @P1 AND owner = @P2 AND fence = @P3 AND expires_at > @now

-- name: bump_version
-- Increases the version of a namespace, and returns it. Must run in a transaction. [version.bump]
-- Primary key of versions. If two callers race for a namespace without a version, one may fail with
-- a duplicate key; it then begins again.
DECLARE @now bigint = {now};
UPDATE {schema}.versions SET version = CASE WHEN version >= @now THEN version + 1 ELSE @now END
WHERE namespace = @P1;
IF @@ROWCOUNT = 0 INSERT INTO {schema}.versions (namespace, version) VALUES (@P1, @now);
SELECT version FROM {schema}.versions WHERE namespace = @P1

-- name: find_versions
-- Returns the versions of the namespaces that have one. [version.read] Primary key of versions.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
SELECT namespace, version FROM {schema}.versions
WHERE namespace IN (SELECT name FROM @wanted)
