-- The claims that were the last to settle these jobs, and the present ones of those that run at the
-- head of a lane: 0 stands for none. [settle.repeat] [lane.promote] Primary key of jobs.
SELECT id, settled_seq, CASE WHEN state = 3 AND flags & 4 = 4 THEN claim_seq ELSE 0 END
FROM {schema}.jobs
WHERE id = ANY($1::uuid[])
