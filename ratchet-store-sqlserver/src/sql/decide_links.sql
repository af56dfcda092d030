-- Decides open links. [link.decide] [link.once] Primary key of links.
UPDATE link SET state = decided.state
FROM {schema}.links AS link
JOIN (SELECT CONVERT(binary(16), given.child, 2) AS child, given.place, given.state
      FROM OPENJSON(@P1) WITH (child char(32), place int, state smallint) AS given) AS decided
    ON link.child = decided.child AND link.place = decided.place
WHERE link.state = 0
