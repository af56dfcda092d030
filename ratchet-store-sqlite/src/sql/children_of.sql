-- The links on a parent, of children behind one. [link.children] ratchet_links_parent.
SELECT child, state, condition FROM ratchet_links INDEXED BY ratchet_links_parent
WHERE parent = ?1 AND kind = ?2 AND child > ?3
ORDER BY child, place
LIMIT ?4
