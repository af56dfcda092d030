-- The next version of a namespace. [version.bump] Primary key of versions.
INSERT INTO {schema}.versions AS old (namespace, version) VALUES ($1, 1)
ON CONFLICT (namespace) DO UPDATE SET version = old.version + 1
RETURNING version
