-- Takes a lock that is free, or takes it again; otherwise says who has it. Two callers that meet may
-- leave one without a row: it looks again.
-- [lock.exclusive] [lock.held] [lock.expire] [lock.again] [lock.fence] Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
taken AS (
    INSERT INTO {schema}.locks AS lock (name, owner, fence, expires_at)
    SELECT $1, $2, 1, now + $3 FROM clock
    ON CONFLICT (name) DO UPDATE
    SET owner = excluded.owner, expires_at = excluded.expires_at,
        fence = lock.fence + CASE WHEN lock.expires_at > (SELECT now FROM clock) THEN 0 ELSE 1 END
    WHERE lock.owner = excluded.owner OR lock.expires_at <= (SELECT now FROM clock)
    RETURNING fence
)
SELECT fence, NULL, NULL FROM taken
UNION ALL
SELECT lock.fence, lock.owner, lock.expires_at - clock.now
FROM {schema}.locks AS lock CROSS JOIN clock
WHERE lock.name = $1 AND lock.owner <> $2 AND lock.expires_at > clock.now
  AND NOT EXISTS (SELECT FROM taken)
