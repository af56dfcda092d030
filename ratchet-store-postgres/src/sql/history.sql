-- The ended claims of a job. [history.order] Primary key of attempts.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error
FROM {schema}.attempts
WHERE job = $1
ORDER BY seq
