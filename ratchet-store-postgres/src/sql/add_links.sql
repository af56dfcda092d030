-- Links new jobs to their parents. [link.wait]
INSERT INTO {schema}.links (child, place, kind, parent, condition)
SELECT child, place, kind, parent, condition
FROM unnest($1::uuid[], $2::integer[], $3::smallint[], $4::uuid[], $5::text[])
    AS new (child, place, kind, parent, condition)
