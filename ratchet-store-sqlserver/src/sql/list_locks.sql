-- One page of the locks. [lock.list] Primary key of locks.
DECLARE @now bigint = {now};
SELECT TOP (@P2) owner, fence, expires_at, @now, name
FROM {schema}.locks
WHERE name > @P1
ORDER BY name
