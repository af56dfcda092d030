-- Links a new job to a parent. [link.wait]
INSERT INTO ratchet_links (child, place, kind, parent, condition) VALUES (?1, ?2, ?3, ?4, ?5)
