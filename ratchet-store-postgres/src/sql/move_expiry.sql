-- Moves the end of an unexpired tenure to so long from now, or to the past (none) to free the lock,
-- and binds it to this session, or to none.
-- [lock.renew] [lock.release] Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.locks AS lock
SET expires_at = coalesce(clock.now + $4::bigint, 0),
    session_pid = $5::integer, session_start = $6::bigint
FROM clock
WHERE lock.name = $1 AND lock.owner = $2 AND lock.fence = $3 AND lock.expires_at > clock.now
