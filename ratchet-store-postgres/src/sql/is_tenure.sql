-- A row if this tenure lasts. Nobody can take the lock before the transaction ends. [guard.write]
-- Primary key of locks.
SELECT 1 FROM {schema}.locks
WHERE name = $1 AND owner = $2 AND fence = $3 AND expires_at > {now}
FOR SHARE
