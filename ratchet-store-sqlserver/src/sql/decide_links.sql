-- Decides open links. [link.decide] [link.once] Primary key of links.
DECLARE @decided TABLE (child binary(16) NOT NULL, place int NOT NULL, state smallint NOT NULL,
                        PRIMARY KEY (child, place));
INSERT INTO @decided (child, place, state)
SELECT CONVERT(binary(16), given.child, 2), given.place, given.state
FROM OPENJSON(@P1) WITH (child char(32), place int, state smallint) AS given;
UPDATE link SET state = decided.state
FROM @decided AS decided
INNER LOOP JOIN {schema}.links AS link WITH (FORCESEEK, ROWLOCK)
    ON link.child = decided.child AND link.place = decided.place
WHERE link.state = 0
