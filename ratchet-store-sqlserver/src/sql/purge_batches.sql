-- Deletes the longest ended batches, but for those that somebody has. [batch.purge] batches_ended, read
-- in its order; what is deleted is come by in a range of its id, so that locked rows are passed over, and
-- looked at again.
DECLARE @before bigint = {now} - @P1;
DECLARE @old TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @old (id)
SELECT TOP (@P2) id FROM {schema}.batches WITH (ROWLOCK{passing})
WHERE ended_at IS NOT NULL AND ended_at < @before
ORDER BY ended_at, id;
DELETE batch
FROM @old AS old
INNER LOOP JOIN {schema}.batches AS batch
    WITH (INDEX(batches_pkey), FORCESEEK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range batch.id old.id}
WHERE batch.ended_at < @before
