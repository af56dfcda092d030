-- A process that keeps routes in memory proves with the number and the stamp of the last one that the
-- database is still the one it read them from: a restored one may have given the number to another
-- route, and never the stamp.
ALTER TABLE ratchet_routes ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
UPDATE ratchet_routes SET stamp = random();
