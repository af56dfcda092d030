-- Notes when batches ended. [batch.end] Primary key of batches.
UPDATE {schema}.batches SET ended_at = {now} WHERE id = ANY($1::uuid[]) AND ended_at IS NULL
