-- Puts unfinished jobs into lanes that are locked. [lane.sequence] [lane.requeue]
INSERT INTO {schema}.lane_jobs (job, queue, lane, seq)
SELECT job, queue, lane, seq
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) AS place (job, queue, lane, seq)
