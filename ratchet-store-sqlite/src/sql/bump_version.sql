-- The next version of a namespace. [version.bump] Primary key of ratchet_versions.
INSERT INTO ratchet_versions (namespace, version) VALUES (?1, 1)
ON CONFLICT (namespace) DO UPDATE SET version = version + 1
RETURNING version
