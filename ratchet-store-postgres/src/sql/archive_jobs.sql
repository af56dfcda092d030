-- Puts the documents of jobs into the archive, in place of earlier ones with their ids.
-- [archive.move] Primary key of archive.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {schema}.archive (id, state, finished_at, queue, kind, document, archived_at)
SELECT given.id, given.state, given.finished_at, given.queue, given.kind, given.document, clock.now
FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::text[])
    AS given (id, state, finished_at, queue, kind, document)
CROSS JOIN clock
ON CONFLICT (id) DO UPDATE
SET state = excluded.state, finished_at = excluded.finished_at, queue = excluded.queue,
    kind = excluded.kind, document = excluded.document, archived_at = excluded.archived_at
