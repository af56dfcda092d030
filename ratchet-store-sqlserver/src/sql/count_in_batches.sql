-- Counts children that ended; how their batches stand then, locked until the transaction ends.
-- [batch.count] Primary key of batches.
DECLARE @tally TABLE (id binary(16) NOT NULL PRIMARY KEY, succeeded bigint NOT NULL,
                      failed bigint NOT NULL, cancelled bigint NOT NULL);
INSERT INTO @tally (id, succeeded, failed, cancelled)
SELECT CONVERT(binary(16), given.id, 2), given.succeeded, given.failed, given.cancelled
FROM OPENJSON(@P1) WITH (id char(32), succeeded bigint, failed bigint, cancelled bigint) AS given;
UPDATE batch
SET succeeded = batch.succeeded + tally.succeeded, failed = batch.failed + tally.failed,
    cancelled = batch.cancelled + tally.cancelled
FROM @tally AS tally
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = tally.id;
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id IN (SELECT id FROM @tally)
