-- One page of the locks. [lock.list] Primary key of locks.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT owner, fence, expires_at, (SELECT now FROM clock), name
FROM {schema}.locks
WHERE name > $1
ORDER BY name
LIMIT $2
