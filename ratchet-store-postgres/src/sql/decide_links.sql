-- Decides open links. [link.decide] [link.once] Primary key of links.
UPDATE {schema}.links AS link SET state = decided.state
FROM unnest($1::uuid[], $2::integer[], $3::smallint[]) AS decided (child, place, state)
WHERE link.child = decided.child AND link.place = decided.place AND link.state = 0
