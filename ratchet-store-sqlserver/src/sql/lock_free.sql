-- Locks those of these jobs that nobody else has locked, until the transaction ends; they come back.
-- Primary key of jobs, by a range, since a locked row is passed over only there. Where hints do
-- nothing, all come back and none is locked: the caller is as patient as it was with them.
SELECT job.id
FROM (SELECT CONVERT(binary(16), value, 2) AS id FROM OPENJSON(@P1)) AS wanted
JOIN {schema}.jobs AS job WITH (UPDLOCK, READPAST, ROWLOCK)
    ON job.id >= wanted.id AND job.id <= wanted.id
