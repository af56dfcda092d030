-- Locks those of these jobs that nobody else has locked, until the transaction ends; they come back.
-- Primary key of jobs, come by in a range of the id, since a locked row is passed over only there. Where
-- hints do nothing, all come back and none is locked: the caller is as patient as it was with them.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job
    WITH (INDEX(jobs_pkey), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range job.id wanted.id}
