-- The applied migrations, in order.
SELECT version, name, checksum FROM ratchet_migrations ORDER BY version
