-- Counts children that ended; how their batches stand then, locked until the transaction ends.
-- [batch.count] Primary key of batches.
UPDATE {schema}.batches AS batch
SET succeeded = batch.succeeded + tally.succeeded, failed = batch.failed + tally.failed,
    cancelled = batch.cancelled + tally.cancelled
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])
    AS tally (id, succeeded, failed, cancelled)
WHERE batch.id = tally.id
RETURNING batch.id, batch.total, batch.succeeded, batch.failed, batch.cancelled, batch.closed,
          batch.created_at, batch.ended_at
