-- One page of the locks; whether their holders' sessions are gone. [lock.list]
-- Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT lock.owner, lock.fence, lock.expires_at, clock.now,
       {session_gone}, lock.name
FROM {schema}.locks AS lock CROSS JOIN clock
WHERE lock.name > $1
ORDER BY lock.name
LIMIT $2
