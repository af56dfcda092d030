-- Locks those of these jobs that nobody else has locked, until the transaction ends; they come back.
-- Primary key of jobs, which is read without locks; the row itself is what is locked, come by in a
-- range of its place, since a locked row is passed over only there. Where hints do nothing, all come
-- back and none is locked: the caller is as patient as it was with them.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
DECLARE @found TABLE (place bigint NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
INSERT INTO @found (place) SELECT place FROM {schema}.jobs WHERE id IN (SELECT id FROM @wanted);
SELECT job.id
FROM @found AS found
JOIN {schema}.jobs AS job WITH (UPDLOCK, READPAST, ROWLOCK)
    ON job.place >= found.place AND job.place <= found.place
