-- Notes that a migration was applied.
INSERT INTO ratchet_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)
