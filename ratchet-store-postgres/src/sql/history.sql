-- The ended claims of a job. [history.order] Primary keys. The claim that succeeded, the last one, is
-- in the row of the job.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error
FROM {schema}.attempts
WHERE job = $1
UNION ALL
SELECT claim_seq, node, coalesce(claimed_at, finished_at), finished_at, ran_for_us, 0::smallint, NULL
FROM {schema}.jobs
WHERE id = $1 AND state + 0 = 4
ORDER BY seq
