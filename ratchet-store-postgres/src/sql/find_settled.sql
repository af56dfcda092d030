-- The claims that were the last to settle these jobs, and the present ones of those that run: 0 stands
-- for none. [settle.repeat] [lane.promote] [link.decide]
-- The claim that succeeded is in no history: its node and time are still the job's. Primary keys.
SELECT job.id, job.settled_seq, CASE WHEN job.state = 3 THEN job.claim_seq ELSE 0 END, job.flags,
       CASE WHEN attempt.job IS NULL THEN job.node ELSE attempt.node END,
       CASE WHEN attempt.job IS NULL THEN job.claimed_at ELSE attempt.claimed_at END,
       job.node, job.claimed_at
FROM {schema}.jobs AS job
LEFT JOIN {schema}.attempts AS attempt
  ON attempt.job = job.id AND attempt.seq = job.settled_seq
WHERE job.id = ANY($1::uuid[])
