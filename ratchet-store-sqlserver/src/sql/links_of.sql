-- What jobs wait for. [link.parents] [link.decide] Primary key of links.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT child, place, kind, parent, state, condition
FROM {schema}.links
WHERE child IN (SELECT id FROM @wanted)
ORDER BY child, place
