-- Takes back claims that the same transaction made and for which there is no permit: nobody has seen
-- them. What else a claim wrote means nothing while a job does not run. [permit.max] Primary key.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET state = 0, claim_seq = job.claim_seq - 1
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 = 3
