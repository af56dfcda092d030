-- Stores a recurring definition; a duplicate if there is one of its name. [recurring.create] Primary
-- key of recurring.
INSERT INTO {schema}.recurring (name, incarnation, revision, definition, next_fire, last_slot, paused,
                                declared, created_at)
VALUES (@P1, CONVERT(binary(16), @P2), @P3, @P4, @P5, @P6, @P7, @P8, @P9)
