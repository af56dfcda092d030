-- Deletes the longest finished of the archived jobs. [archive.purge]
-- archive_finished, read in its order, and the primary key.
DECLARE @before bigint = {now} - @P1;
DELETE FROM {schema}.archive
WHERE finished_at < @before AND id IN (
    SELECT TOP (@P2) id FROM {schema}.archive WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE finished_at < @before
    ORDER BY finished_at, id
)
