-- Which of these jobs have open links. [link.requeue] [signal.deliver] Primary key of links.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT DISTINCT child FROM {schema}.links
WHERE child IN (SELECT id FROM @wanted) AND state = 0
