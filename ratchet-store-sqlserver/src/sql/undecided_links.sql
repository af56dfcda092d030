-- The open links of jobs, and whether each job waits for a signal. [link.decide]
-- Primary keys of links and of signals.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT link.child, link.place, link.kind, link.parent, link.state, link.condition,
       CAST(CASE WHEN signal.job IS NULL THEN 0 ELSE 1 END AS bit)
FROM {schema}.links AS link
LEFT JOIN {schema}.signals AS signal ON signal.job = link.child AND signal.state = 0
WHERE link.child IN (SELECT id FROM @wanted) AND link.state = 0
ORDER BY link.child, link.place
