-- Puts the documents of jobs into the archive, in place of earlier ones with their ids. Within a
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
