-- Takes a lock that is free, or takes it again; otherwise says who has it. Two callers that meet at a
-- lock that nobody has had yet may leave one with an error (duplicate key): it looks again.
-- How a lock ends is ratchet_core::store::renewed_end.
-- [lock.exclusive] [lock.held] [lock.expire] [lock.again] [lock.fence] Primary key of locks.
DECLARE @now bigint = {now};
DECLARE @taken TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
BEGIN TRANSACTION;
UPDATE {schema}.locks
SET fence = CASE WHEN owner = @P2 AND expires_at > @now THEN fence
                 WHEN fence >= @now THEN fence + 1 ELSE @now END,
    owner = @P2,
    expires_at = CASE WHEN owner <> @P2 OR expires_at < @now + @P3 THEN @now + @P3
                      WHEN expires_at > @now + 2 * @P3 THEN @now + 2 * @P3 ELSE expires_at END
OUTPUT inserted.name INTO @taken
WHERE name = @P1 AND (owner = @P2 OR expires_at <= @now);
IF NOT EXISTS (SELECT 1 FROM @taken)
    INSERT INTO {schema}.locks (name, owner, fence, expires_at)
    OUTPUT inserted.name INTO @taken
    SELECT @P1, @P2, @now, @now + @P3
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.locks WHERE name = @P1);
SELECT fence, CASE WHEN taken.name IS NULL THEN owner END, expires_at - @now
FROM {schema}.locks AS known
LEFT JOIN @taken AS taken ON taken.name = known.name
WHERE known.name = @P1 AND (taken.name IS NOT NULL OR (owner <> @P2 AND expires_at > @now));
COMMIT TRANSACTION
