-- The next version of a namespace. [version.bump] Primary key of versions.
INSERT INTO {schema}.versions AS old (namespace, version) VALUES ($1, {now})
ON CONFLICT (namespace) DO UPDATE SET version = greatest(old.version + 1, excluded.version)
RETURNING version
