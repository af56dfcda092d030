-- The links on a parent, of children behind one ($3; none: all). [link.children] links_parent.
SELECT child, place, kind, parent, state, condition
FROM {schema}.links
WHERE parent = $1 AND kind = $2
  AND child > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY child, place
LIMIT $4
