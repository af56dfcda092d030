-- Locks and versions.

-- name: acquire_lock
-- Acquires a free lock, or acquires it again for its owner; otherwise returns its holder. If two
-- callers race, one may get no row, and then tries again. A lock that is bound to a session is also
-- free once that session has ended. A session whose start this role may not see counts as alive.
-- The statement reads the sessions only after it has locked the row: it can read them only once,
-- and the holder may reconnect while the statement waits for the row.
-- ratchet_core::store::renewed_end defines the new expiry. [lock.exclusive] [lock.held]
-- [lock.expire] [lock.again] [lock.fence] Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
taken AS (
    INSERT INTO {schema}.locks AS lock
        (name, owner, fence, expires_at, session_pid, session_start)
    SELECT $1, $2, now, now + $3, $4::integer, $5::bigint FROM clock
    ON CONFLICT (name) DO UPDATE
    SET owner = excluded.owner,
        expires_at = CASE
            WHEN lock.owner = excluded.owner
            THEN least(greatest(lock.expires_at, excluded.expires_at), excluded.expires_at + $3)
            ELSE excluded.expires_at END,
        session_pid = excluded.session_pid, session_start = excluded.session_start,
        fence = CASE
            WHEN lock.owner = excluded.owner AND lock.expires_at > (SELECT now FROM clock)
            THEN lock.fence
            ELSE greatest(lock.fence + 1, (SELECT now FROM clock)) END
    WHERE lock.owner = excluded.owner OR lock.expires_at <= (SELECT now FROM clock)
       OR {session_gone}
    RETURNING fence
)
SELECT fence, NULL, NULL FROM taken
UNION ALL
SELECT lock.fence, lock.owner, lock.expires_at - clock.now
FROM {schema}.locks AS lock CROSS JOIN clock
WHERE lock.name = $1 AND lock.owner <> $2 AND lock.expires_at > clock.now
  AND NOT EXISTS (SELECT FROM taken)

-- name: move_expiry
-- Renews an unexpired tenure for the TTL $4, or releases the lock if $4 is NULL.
-- ratchet_core::store::renewed_end defines the new expiry. Binds the lock to a session ($5 and $6),
-- or to none (NULL). [lock.renew] [lock.release] Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.locks AS lock
SET expires_at = CASE
        WHEN $4::bigint IS NULL THEN 0
        ELSE least(greatest(lock.expires_at, clock.now + $4::bigint), clock.now + 2 * $4::bigint) END,
    session_pid = $5::integer, session_start = $6::bigint
FROM clock
WHERE lock.name = $1 AND lock.owner = $2 AND lock.fence = $3 AND lock.expires_at > clock.now

-- name: find_lock
-- Returns one lock, and whether its holder's session has ended. [lock.inspect]
-- Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT lock.owner, lock.fence, lock.expires_at, clock.now,
       {session_gone}
FROM {schema}.locks AS lock CROSS JOIN clock
WHERE lock.name = $1

-- name: list_locks
-- Returns one page of the locks, and whether their holders' sessions have ended. [lock.list]
-- Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT lock.owner, lock.fence, lock.expires_at, clock.now,
       {session_gone}, lock.name
FROM {schema}.locks AS lock CROSS JOIN clock
WHERE lock.name > $1
ORDER BY lock.name
LIMIT $2

-- name: is_tenure
-- Returns a row if this tenure still lasts. No other owner can then acquire the lock before the
-- transaction ends. [guard.write] Primary key of locks.
SELECT 1 FROM {schema}.locks
WHERE name = $1 AND owner = $2 AND fence = $3 AND expires_at > {now}
FOR SHARE

-- name: bump_version
-- Increases the version of a namespace, and returns it. [version.bump] Primary key of versions.
INSERT INTO {schema}.versions AS old (namespace, version) VALUES ($1, {now})
ON CONFLICT (namespace) DO UPDATE SET version = greatest(old.version + 1, excluded.version)
RETURNING version

-- name: find_versions
-- Returns the versions of the namespaces that have one. [version.read] Primary key of versions.
SELECT namespace, version FROM {schema}.versions WHERE namespace = ANY($1::text[])

-- name: own_session
-- Returns the session of this connection: its process, its start (NULL if this role may not see
-- it), and the time now. Times are in microseconds since 1970, by the server's clock.
SELECT session.pid, floor(extract(epoch FROM session.backend_start) * 1000000)::bigint,
       floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM pg_catalog.pg_stat_activity AS session WHERE session.pid = pg_backend_pid()

-- name: rebind_locks
-- Rebinds the locks of one session, $1 and $2, to another, $3 and $4. Does not change locks that
-- another owner has taken over. Reads the whole table of the few locks, once per new connection.
UPDATE {schema}.locks SET session_pid = $3, session_start = $4
WHERE session_pid = $1 AND session_start = $2
