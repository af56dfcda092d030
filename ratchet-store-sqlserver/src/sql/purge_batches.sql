-- Deletes the longest ended batches. [batch.purge] batches_ended, read in its order.
DECLARE @before bigint = {now} - @P1;
DELETE FROM {schema}.batches
WHERE ended_at IS NOT NULL AND ended_at < @before AND id IN (
    SELECT TOP (@P2) id FROM {schema}.batches WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE ended_at IS NOT NULL AND ended_at < @before
    ORDER BY ended_at, id
)
