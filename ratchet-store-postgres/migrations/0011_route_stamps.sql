-- A process that keeps routes in memory proves with the number and the stamp of one route that it
-- still talks to the database it read them from: a restored one, or one that took over, may have
-- given the number to another route, and never the stamp.
ALTER TABLE {schema}.routes ADD COLUMN stamp bigint NOT NULL
    DEFAULT ('x' || left(translate(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint;
