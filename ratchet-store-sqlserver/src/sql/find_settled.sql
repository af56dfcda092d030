-- The claims that were the last to settle these jobs, and the present ones of those that run: 0 stands
-- for none. [settle.repeat] [lane.promote] [link.decide]
-- Primary key of jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT id, settled_seq, CASE WHEN state = 3 THEN claim_seq ELSE 0 END, flags
FROM {schema}.jobs
WHERE id IN (SELECT id FROM @wanted)
