-- Moves the end of an unexpired tenure to so long from now, or to the past (none) to free the lock.
-- [lock.renew] [lock.release] Primary key of locks.
DECLARE @now bigint = {now};
UPDATE {schema}.locks SET expires_at = COALESCE(@now + @P4, 0)
WHERE name = @P1 AND owner = @P2 AND fence = @P3 AND expires_at > @now
