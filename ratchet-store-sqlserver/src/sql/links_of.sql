-- What jobs wait for. [link.parents] [link.decide] Primary key of links.
SELECT child, place, kind, parent, state, condition
FROM {schema}.links
WHERE child IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
ORDER BY child, place
