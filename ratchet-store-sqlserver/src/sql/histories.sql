-- The ended claims of jobs. [archive.move] As history, which says where they are.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error, job
FROM {schema}.attempts
WHERE job IN (SELECT id FROM @wanted)
UNION ALL
SELECT claim_seq, node, COALESCE(claimed_at, finished_at), finished_at, ran_for_us,
       CAST(0 AS smallint), CAST(NULL AS nvarchar(max)), id
FROM {schema}.jobs
WHERE id IN (SELECT id FROM @wanted) AND state + 0 = 4
ORDER BY job, seq
