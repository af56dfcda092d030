-- Counts new children of open batches, which are locked. [batch.join] Primary key of batches.
UPDATE {schema}.batches AS batch SET total = batch.total + grown.count
FROM unnest($1::uuid[], $2::bigint[]) AS grown (id, count)
WHERE batch.id = grown.id
