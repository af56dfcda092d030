-- Decides an open link. [link.decide] [link.once] Primary key of ratchet_links.
UPDATE ratchet_links SET state = ?3 WHERE child = ?1 AND place = ?2 AND state = 0
