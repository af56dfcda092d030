-- Takes jobs that ended ($3) out of lanes that are locked, lets those be claimed that are the heads
-- then, and forgets the lanes that are empty. [lane.head] [lane.promote] [lane.cancel]
-- lane_jobs_order and primary keys. In a statement after the one that locked the lanes, so that it
-- sees all who entered them.
WITH gone AS (
    DELETE FROM {schema}.lane_jobs WHERE job = ANY($3::uuid[])
),
head AS MATERIALIZED (
    SELECT wanted.queue, wanted.lane,
           (SELECT member.job FROM {schema}.lane_jobs AS member
            WHERE member.queue = wanted.queue AND member.lane = wanted.lane
              AND member.job <> ALL($3::uuid[])
            ORDER BY member.seq
            LIMIT 1) AS job
    FROM unnest($1::text[], $2::text[]) AS wanted (queue, lane)
),
promoted AS (
    UPDATE {schema}.jobs AS job SET state = 0
    FROM head
    WHERE job.id = head.job AND job.state + 0 = 1
)
DELETE FROM {schema}.lanes AS lane
USING head
WHERE head.job IS NULL AND lane.queue = head.queue AND lane.lane = head.lane
