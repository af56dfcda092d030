-- The archive.

-- name: archive_jobs
-- Stores the documents of jobs in the archive, replacing documents of the same ids. Must run in a
-- transaction. [archive.move] Primary key of archive.
DECLARE @now bigint = {now};
DECLARE @given TABLE (id binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL,
                      finished_at bigint NOT NULL,
                      queue nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                      kind nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
                      document nvarchar(max) NOT NULL);
INSERT INTO @given (id, state, finished_at, queue, kind, document)
SELECT CONVERT(binary(16), given.id, 2), given.state, given.finished_at, {name given.queue},
       {name given.kind}, {text given.document}
FROM OPENJSON(@P1) WITH (id char(32), state smallint, finished_at bigint, queue nvarchar(256),
                         kind nvarchar(256), document {long}) AS given;
DELETE old
FROM @given AS given
INNER LOOP JOIN {schema}.archive AS old WITH (FORCESEEK, ROWLOCK) ON old.id = given.id;
INSERT INTO {schema}.archive (id, state, finished_at, queue, kind, document, archived_at)
SELECT id, state, finished_at, queue, kind, document, @now FROM @given

-- name: get_archived
-- Returns the archived jobs with these ids. [archive.get] Primary key of archive.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT id, archived_at, document FROM {schema}.archive
WHERE id IN (SELECT id FROM @wanted)

-- name: list_archived_oldest list_archived_newest
-- Lists the archived jobs that ended in given states (@P1: a bit for each), of the queue @P3 if @P2
-- and of the kind @P5 if @P4, after the job @P6, in the order of the page. [archive.list] Primary
-- key of archive.
SELECT TOP (@P7) id, archived_at, document FROM {schema}.archive
WHERE id {behind} CONVERT(binary(16), @P6) AND @P1 & POWER(2, state) <> 0
  AND (@P2 = 0 OR queue = @P3) AND (@P4 = 0 OR kind = @P5)
ORDER BY id{descending}

-- name: purge_archive
-- Deletes the archived jobs that finished longest ago, except those that another transaction has
-- locked. [archive.purge] archive_finished, read in its order, and the primary key. The rows to
-- delete are found by a range of their id, so that locked ones are skipped, and their conditions
-- are checked again.
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
