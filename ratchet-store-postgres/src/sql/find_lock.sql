-- One lock; whether its holder's session is gone. [lock.inspect]
-- Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT lock.owner, lock.fence, lock.expires_at, clock.now,
       {session_gone}
FROM {schema}.locks AS lock CROSS JOIN clock
WHERE lock.name = $1
