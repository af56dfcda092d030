-- Locks lanes until the transaction ends and takes so many sequences of each ($3; 0: only the lock),
-- the last of which comes back. A lane that has no unfinished job has no row until now.
-- [lane.sequence] [lane.head] Primary key of lanes; the caller sends them in order of name, so that
-- two calls lock in one order.
INSERT INTO {schema}.lanes AS lane (queue, lane, last_seq)
SELECT wanted.queue, wanted.lane, wanted.count
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY
    AS wanted (queue, lane, count, place)
ORDER BY wanted.place
ON CONFLICT (queue, lane) DO UPDATE SET last_seq = lane.last_seq + excluded.last_seq
RETURNING lane.queue, lane.lane, lane.last_seq
