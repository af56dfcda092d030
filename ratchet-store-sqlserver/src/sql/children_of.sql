-- The links on a parent, of children behind one (@P3). [link.children] links_parent.
SELECT TOP (@P4) child, place, kind, parent, state, condition
FROM {schema}.links
WHERE parent = CONVERT(binary(16), @P1) AND kind = @P2 AND child > CONVERT(binary(16), @P3)
ORDER BY child, place
