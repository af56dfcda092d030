-- Deletes the longest finished of the archived jobs. [archive.purge]
-- archive_finished, read in its order, and the primary key.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
old AS MATERIALIZED (
    SELECT id FROM {schema}.archive
    WHERE finished_at < (SELECT now FROM clock) - $1::bigint
    ORDER BY finished_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.archive WHERE id = ANY(ARRAY(SELECT id FROM old))
