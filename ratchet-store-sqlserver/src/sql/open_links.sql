-- Which of these jobs have open links. [link.requeue] [signal.deliver] Primary key of links.
SELECT DISTINCT child FROM {schema}.links
WHERE child IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND state = 0
