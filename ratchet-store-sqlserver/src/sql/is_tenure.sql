-- A row if this tenure lasts. Nobody can take the lock before the transaction ends. [guard.write]
-- Primary key of locks. The row is written as it was: that locks it everywhere.
DECLARE @now bigint = {now};
UPDATE {schema}.locks SET fence = fence
WHERE name = @P1 AND owner = @P2 AND fence = @P3 AND expires_at > @now;
SELECT fence FROM {schema}.locks WITH (UPDLOCK, ROWLOCK)
WHERE name = @P1 AND owner = @P2 AND fence = @P3 AND expires_at > @now
