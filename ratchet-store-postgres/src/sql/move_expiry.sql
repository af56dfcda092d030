-- Renews an unexpired tenure for $4 (ratchet_core::store::renewed_end), or frees the lock (none), and
-- binds it to this session, or to none.
-- [lock.renew] [lock.release] Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.locks AS lock
SET expires_at = CASE
        WHEN $4::bigint IS NULL THEN 0
        ELSE least(greatest(lock.expires_at, clock.now + $4::bigint), clock.now + 2 * $4::bigint) END,
    session_pid = $5::integer, session_start = $6::bigint
FROM clock
WHERE lock.name = $1 AND lock.owner = $2 AND lock.fence = $3 AND lock.expires_at > clock.now
