-- What jobs wait for. [link.parents] [link.decide] Primary key of links.
SELECT child, place, kind, parent, state, condition
FROM {schema}.links
WHERE child = ANY($1::uuid[])
ORDER BY child, place
