-- The versions of namespaces that have one. [version.read] Primary key of versions.
SELECT namespace, version FROM {schema}.versions
WHERE namespace IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(@P1))
