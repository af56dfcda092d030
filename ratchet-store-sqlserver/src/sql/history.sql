-- The ended claims of a job. [history.order] Primary keys. The claim that succeeded, the last one, is
-- in the row of the job.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error
FROM {schema}.attempts
WHERE job = CONVERT(binary(16), @P1)
UNION ALL
SELECT claim_seq, node, COALESCE(claimed_at, finished_at), finished_at, ran_for_us,
       CAST(0 AS smallint), CAST(NULL AS nvarchar(max))
FROM {schema}.jobs
WHERE id = CONVERT(binary(16), @P1) AND state + 0 = 4
ORDER BY seq
