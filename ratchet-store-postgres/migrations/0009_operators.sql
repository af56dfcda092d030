-- What operators see of a node: the kinds it runs (names, one a line; none: it does not say), and what
-- it has done since it was built, one JSON text.
ALTER TABLE {schema}.nodes ADD COLUMN kinds text;
ALTER TABLE {schema}.nodes ADD COLUMN totals text;
