-- The versions of namespaces that have one. [version.read] Primary key of versions.
SELECT namespace, version FROM {schema}.versions
WHERE namespace IN (SELECT {name value} FROM OPENJSON(@P1))
