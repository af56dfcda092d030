-- Takes a lock that is free, or takes it again; otherwise says who has it. Two callers that meet may
-- leave one without a row: it looks again.
-- A lock that is bound to a session is free as well once the server has no such session; one whose
-- beginning this role may not see counts as alive. The sessions are read where the row is locked
-- already and nowhere before: they are read once in a statement, and the holder may have come back
-- on a new one while this statement waited for the row.
-- How a lock ends is ratchet_core::store::renewed_end.
-- [lock.exclusive] [lock.held] [lock.expire] [lock.again] [lock.fence] Primary key of locks.
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
