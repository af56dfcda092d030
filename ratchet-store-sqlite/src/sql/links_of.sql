-- What a job waits for. [link.parents] [link.decide] Primary key of ratchet_links.
SELECT place, kind, parent, state, condition FROM ratchet_links WHERE child = ?1 ORDER BY place
