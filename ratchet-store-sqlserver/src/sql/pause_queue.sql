-- Pauses a queue, once the claims that are going on are over, and holds up those that begin until it
-- is done; whether it was not paused before. [queue.pause] [queue.again] Primary key.
DECLARE @now bigint = {now};
DECLARE @got int;
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = {claims}, @LockMode = 'Exclusive',
                          @LockOwner = 'Transaction', @LockTimeout = {lock_timeout};
IF @got < 0 THROW 50001, N'the claims that are going on take too long', 1;
INSERT INTO {schema}.paused_queues (queue, paused_at)
SELECT @P1, @now WHERE NOT EXISTS (SELECT 1 FROM {schema}.paused_queues WHERE queue = @P1);
SELECT @@ROWCOUNT;
COMMIT TRANSACTION
