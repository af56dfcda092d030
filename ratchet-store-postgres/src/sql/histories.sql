-- The ended claims of jobs. [archive.move] As history, which says where they are.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error, job
FROM {schema}.attempts
WHERE job = ANY($1::uuid[])
UNION ALL
SELECT claim_seq, node, coalesce(claimed_at, finished_at), finished_at, ran_for_us, 0::smallint, NULL,
       id
FROM {schema}.jobs
WHERE id = ANY($1::uuid[]) AND state + 0 = 4
ORDER BY job, seq
