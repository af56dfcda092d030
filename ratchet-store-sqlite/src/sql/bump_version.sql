-- The next version of a namespace. [version.bump] Primary key of ratchet_versions.
INSERT INTO ratchet_versions (namespace, version) VALUES (?1, ?2)
ON CONFLICT (namespace) DO UPDATE SET version = max(version + 1, excluded.version)
RETURNING version
