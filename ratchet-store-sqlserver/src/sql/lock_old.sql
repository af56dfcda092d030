-- The longest finished jobs of a state behind one that was looked at (@P3, @P4) that no unfinished
-- child may read, which stay as they are until the transaction ends. (flags: 16 it has children)
-- Whoever may have got a child meanwhile is looked at again (awaited_parents). [purge.old]
-- [purge.awaited] [archive.old] [archive.awaited] [archive.race] [archive.poison]
-- jobs_finished, read in its order and without locks; each row is locked by a range of its id, so that
-- those which somebody else has are passed over, and its conditions are looked at again; links_parent
-- and primary keys. The rows are written as they were: that locks them everywhere.
DECLARE @before bigint = {now} - @P2;
DECLARE @old TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @old (id)
SELECT TOP (@P5) job.id
FROM {schema}.jobs AS job WITH (INDEX(jobs_finished), FORCESEEK, ROWLOCK{passing})
INNER LOOP JOIN {schema}.jobs AS locked
    WITH (INDEX(jobs_pkey), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range locked.id job.id}
WHERE job.state = @P1 AND job.state >= 4 AND job.finished_at < @before
  AND (job.finished_at > @P3 OR (job.finished_at = @P3 AND job.id > CONVERT(binary(16), @P4)))
  AND locked.state + 0 = @P1 AND locked.finished_at = job.finished_at
  AND (locked.flags & 16 = 0 OR NOT EXISTS (
      SELECT 1 FROM {schema}.links AS link
      JOIN {schema}.jobs AS child ON child.id = link.child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4))
ORDER BY job.finished_at, job.id;
UPDATE job SET flags = job.flags
FROM @old AS old
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = old.id;
SELECT job.id, job.finished_at, job.flags
FROM @old AS old
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = old.id
WHERE job.state + 0 = @P1 AND job.finished_at < @before
ORDER BY job.finished_at, job.id
