-- The batches with ids below one ($1; none: all), the newest first. [batch.list] Primary key,
-- backwards.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY id DESC
LIMIT $2
