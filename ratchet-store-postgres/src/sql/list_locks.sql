-- One page of the locks; whether their holders' sessions are gone. [lock.list]
-- Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT lock.owner, lock.fence, lock.expires_at, clock.now,
       lock.session_pid IS NOT NULL AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_stat_activity AS session
           WHERE session.pid = lock.session_pid
             AND coalesce(floor(extract(epoch FROM session.backend_start) * 1000000)::bigint
                          = lock.session_start, true)
       ), lock.name
FROM {schema}.locks AS lock CROSS JOIN clock
WHERE lock.name > $1
ORDER BY lock.name
LIMIT $2
