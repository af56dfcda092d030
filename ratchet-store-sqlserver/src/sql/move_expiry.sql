-- Renews an unexpired tenure for @P4 (ratchet_core::store::renewed_end), or frees the lock (none).
-- [lock.renew] [lock.release] Primary key of locks.
DECLARE @now bigint = {now};
UPDATE {schema}.locks
SET expires_at = CASE WHEN @P4 IS NULL THEN 0
                      WHEN expires_at < @now + @P4 THEN @now + @P4
                      WHEN expires_at > @now + 2 * @P4 THEN @now + 2 * @P4 ELSE expires_at END
WHERE name = @P1 AND owner = @P2 AND fence = @P3 AND expires_at > @now
