-- Takes back claims that the same transaction made and for which there is no permit: nobody has seen
-- them. What else a claim wrote means nothing while a job does not run. [permit.max] Primary key.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.jobs SET state = 0, claim_seq = claim_seq - 1
WHERE id IN (SELECT id FROM @wanted) AND state = 3
