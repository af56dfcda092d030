-- Deletes the longest finished of the archived jobs, but for those that somebody has. [archive.purge]
-- archive_finished, read in its order, and the primary key; what is deleted is come by in a range of its
-- id, so that locked rows are passed over, and looked at again.
DECLARE @before bigint = {now} - @P1;
DECLARE @old TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @old (id)
SELECT TOP (@P2) id FROM {schema}.archive WITH (ROWLOCK{passing})
WHERE finished_at < @before
ORDER BY finished_at, id;
DELETE archived
FROM @old AS old
INNER LOOP JOIN {schema}.archive AS archived
    WITH (INDEX(archive_pkey), FORCESEEK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range archived.id old.id}
WHERE archived.finished_at < @before
