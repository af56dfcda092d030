-- Links new jobs to their parents. [link.wait]
INSERT INTO {schema}.links (child, place, kind, parent, condition)
SELECT CONVERT(binary(16), given.child, 2), given.place, given.kind,
       CONVERT(binary(16), given.parent, 2), {text given.condition}
FROM OPENJSON(@P1) WITH (child char(32), place int, kind smallint, parent char(32),
                         condition {long}) AS given
