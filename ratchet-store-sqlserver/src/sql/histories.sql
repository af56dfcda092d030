-- The ended claims of jobs. [archive.move] As history, which says where they are.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error, job
FROM {schema}.attempts
WHERE job IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
UNION ALL
SELECT claim_seq, node, COALESCE(claimed_at, finished_at), finished_at, ran_for_us,
       CAST(0 AS smallint), CAST(NULL AS nvarchar(max)), id
FROM {schema}.jobs
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND state = 4
ORDER BY job, seq
