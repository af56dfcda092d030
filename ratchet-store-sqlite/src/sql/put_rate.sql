-- Remembers what ratchet_core::rate::Rate::take said of a key. [rate.exact] Primary key.
INSERT INTO ratchet_rates (key, tat) VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET tat = excluded.tat
