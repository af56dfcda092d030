-- The archived jobs that ended in some states, of a queue ($2; none: any) and of a kind ($3; none:
-- any) behind one ($4; none: all), newest first. [archive.list] Primary key of archive.
SELECT id, archived_at, document FROM {schema}.archive
WHERE id < coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AND state = ANY($1::smallint[])
  AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR kind = $3)
ORDER BY id DESC
LIMIT $5
