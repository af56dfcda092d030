-- Deletes the longest ended batches. [batch.purge] batches_ended, read in its order.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
old AS MATERIALIZED (
    SELECT id FROM {schema}.batches
    WHERE ended_at IS NOT NULL AND ended_at < (SELECT now FROM clock) - $1::bigint
    ORDER BY ended_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.batches WHERE id = ANY(ARRAY(SELECT id FROM old))
