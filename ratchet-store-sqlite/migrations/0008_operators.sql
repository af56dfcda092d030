-- What operators see of a node: the kinds it runs (names, one a line; none: it does not say), and what
-- it has done since it was built, one JSON text.
ALTER TABLE ratchet_nodes ADD COLUMN kinds TEXT;
ALTER TABLE ratchet_nodes ADD COLUMN totals TEXT;
