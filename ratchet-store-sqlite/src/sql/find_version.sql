-- The version of a namespace. [version.read] Primary key of ratchet_versions.
SELECT version FROM ratchet_versions WHERE namespace = ?1
